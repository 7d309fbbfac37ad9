"""One loop, recipes, checkpoints: from a recipe to a run folder that every other command takes."""

from inphase.training.fit import Fitted, fit
from inphase.training.loop import train
from inphase.training.metrics import Status, TrainingError
from inphase.training.recipe import Recipe, change_recipe, find_recipe, read_recipe, write_recipe

__all__ = [
    "Fitted",
    "Recipe",
    "Status",
    "TrainingError",
    "change_recipe",
    "find_recipe",
    "fit",
    "read_recipe",
    "train",
    "write_recipe",
]
