"""Training: recipes, the training loop with exact resume, and `fit` for your own videos."""

from inphase.training.fitting import Fitted, fit
from inphase.training.loop import train
from inphase.training.metrics import Status, Trained, TrainingError
from inphase.training.recipe import Recipe, change_recipe, list_recipes, read_recipe

__all__ = [
    "Fitted",
    "Recipe",
    "Status",
    "Trained",
    "TrainingError",
    "change_recipe",
    "fit",
    "list_recipes",
    "read_recipe",
    "train",
]
