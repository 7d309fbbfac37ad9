"""Temporal alignment of videos of the same action.

Every command is a function. It takes a `progress` callback, prints nothing, and returns a result with `.write(folder)`
and a JSON-ready `.to_dict()`:

    align_videos(videos)                      Aligned
    find_repetitions(session)                 Repetitions, every one with its start and end
    transfer_labels(source, labels, targets)  Labeled
    compare_videos(student, pro)              Comparison of tempo and joint angles
    compare_students(students, pro)           ComparedStudents, one table
    search(query, corpus)                     SearchResult
    retrieve_sound(corpus, model=run, ...)    RetrievedSound
    activation_maps(video, model)             ActivationMaps
    reconstruct_pose(videos)                  ReconstructedPose, the body in 3-D
    embed_corpus(corpus, store)               EmbeddedCorpus, a store of embeddings
    align_corpus(store, out)                  AlignedCorpus
    verify_store(folder)                      VerifiedStore, files that changed since they were written
    fit(folder, out)                          Fitted, a run folder from your own videos
    train(recipe, out)                        Trained, a run folder from a recipe
    evaluate(run)                             Evaluation, scores of a run beside its controls
    reproduce(study, out)                     Reproduction, a table or figure of the paper
    export(folder, out)                       Exported, a web page for any static host
    list_models()                             ListedModels, the model files and whether they are intact

Below them are nouns and the functions between them:

    Video       an annotated recording            listed by the loaders of `inphase.data.DATASETS`
    Clip        decoded frames and their times    read_clip(path)
    Embedding   a unit vector for each frame      embed(encoder, clip), embed_video(encoder, path), embed_videos(paths)
    Alignment   matched frames of two sequences   match(x, y), match_many(pairs), dtw(x, y); of several embeddings,
                                                  in seconds: synchronize(embeddings)
    Run         a run folder                      Run(folder).encoder(), .recipe, .metrics
    Playback    the document the viewer plays     read_playback(folder), write_playback(folder, playback)

`load_encoder(run)` loads an encoder, `read_recipe(name)` a recipe for `train`.
`GTA`, `smooth_dtw` and `soft_dtw` are the losses. docs/engineering/api.md has examples.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# What the library does is logged to "inphase"; an application chooses whether it is printed.
logging.getLogger(__name__).addHandler(logging.NullHandler())

if TYPE_CHECKING:
    from inphase.align import Alignment, dtw, match, match_many, smooth_dtw, soft_dtw
    from inphase.apps.activation_maps import ActivationMaps, activation_maps
    from inphase.apps.align_videos import Aligned, align_videos, synchronize
    from inphase.apps.compare_videos import compare_students, compare_videos
    from inphase.apps.comparison import ComparedStudents, Comparison
    from inphase.apps.pose3d.reconstruct_pose import ReconstructedPose, reconstruct_pose
    from inphase.apps.repetitions import Repetitions, find_repetitions
    from inphase.apps.retrieve_sound import RetrievedSound, retrieve_sound
    from inphase.apps.search import SearchResult
    from inphase.apps.transfer_labels import Labeled, transfer_labels
    from inphase.corpus.align_corpus import AlignedCorpus, align_corpus
    from inphase.corpus.embed_corpus import EmbeddedCorpus, embed_corpus
    from inphase.corpus.store_search import search
    from inphase.corpus.verify_store import VerifiedStore, verify_store
    from inphase.data.video import Video
    from inphase.evaluation.evaluate import Evaluation, evaluate
    from inphase.losses import GTA
    from inphase.media.frames import Clip, read_clip
    from inphase.models import Embedding, embed, load_encoder
    from inphase.models.cards import ListedModels, list_models
    from inphase.models.embed_videos import embed_video, embed_videos
    from inphase.playback import Playback, read_playback, write_playback
    from inphase.reproduction import Reproduction, reproduce
    from inphase.runs import Run
    from inphase.training import Fitted, Trained, fit, read_recipe, train
    from inphase.viewer.page import Exported, export

__all__ = [
    "GTA",
    "ActivationMaps",
    "Aligned",
    "AlignedCorpus",
    "Alignment",
    "Clip",
    "ComparedStudents",
    "Comparison",
    "EmbeddedCorpus",
    "Embedding",
    "Evaluation",
    "Exported",
    "Fitted",
    "Labeled",
    "ListedModels",
    "Playback",
    "ReconstructedPose",
    "Repetitions",
    "Reproduction",
    "RetrievedSound",
    "Run",
    "SearchResult",
    "Trained",
    "VerifiedStore",
    "Video",
    "activation_maps",
    "align_corpus",
    "align_videos",
    "compare_students",
    "compare_videos",
    "dtw",
    "embed",
    "embed_corpus",
    "embed_video",
    "embed_videos",
    "evaluate",
    "export",
    "find_repetitions",
    "fit",
    "list_models",
    "load_encoder",
    "match",
    "match_many",
    "read_clip",
    "read_playback",
    "read_recipe",
    "reconstruct_pose",
    "reproduce",
    "retrieve_sound",
    "search",
    "smooth_dtw",
    "soft_dtw",
    "synchronize",
    "train",
    "transfer_labels",
    "verify_store",
    "write_playback",
]

# Loaded on first use, so that `import inphase` does not wait for torch.
_HOME = {
    "GTA": "inphase.losses",
    "ActivationMaps": "inphase.apps.activation_maps",
    "Aligned": "inphase.apps.align_videos",
    "AlignedCorpus": "inphase.corpus.align_corpus",
    "Alignment": "inphase.align",
    "Clip": "inphase.media.frames",
    "ComparedStudents": "inphase.apps.comparison",
    "Comparison": "inphase.apps.comparison",
    "EmbeddedCorpus": "inphase.corpus.embed_corpus",
    "Embedding": "inphase.models",
    "Evaluation": "inphase.evaluation.evaluate",
    "Exported": "inphase.viewer.page",
    "Labeled": "inphase.apps.transfer_labels",
    "ListedModels": "inphase.models.cards",
    "Fitted": "inphase.training",
    "Repetitions": "inphase.apps.repetitions",
    "Reproduction": "inphase.reproduction",
    "Run": "inphase.runs",
    "Trained": "inphase.training",
    "Playback": "inphase.playback",
    "RetrievedSound": "inphase.apps.retrieve_sound",
    "SearchResult": "inphase.apps.search",
    "ReconstructedPose": "inphase.apps.pose3d.reconstruct_pose",
    "VerifiedStore": "inphase.corpus.verify_store",
    "Video": "inphase.data.video",
    "activation_maps": "inphase.apps.activation_maps",
    "align_corpus": "inphase.corpus.align_corpus",
    "align_videos": "inphase.apps.align_videos",
    "compare_students": "inphase.apps.compare_videos",
    "compare_videos": "inphase.apps.compare_videos",
    "dtw": "inphase.align",
    "embed": "inphase.models",
    "embed_corpus": "inphase.corpus.embed_corpus",
    "evaluate": "inphase.evaluation.evaluate",
    "export": "inphase.viewer.page",
    "find_repetitions": "inphase.apps.repetitions",
    "fit": "inphase.training",
    "list_models": "inphase.models.cards",
    "load_encoder": "inphase.models",
    "match": "inphase.align",
    "match_many": "inphase.align",
    "embed_video": "inphase.models.embed_videos",
    "embed_videos": "inphase.models.embed_videos",
    "read_clip": "inphase.media.frames",
    "read_playback": "inphase.playback",
    "read_recipe": "inphase.training",
    "reproduce": "inphase.reproduction",
    "retrieve_sound": "inphase.apps.retrieve_sound",
    "search": "inphase.corpus.store_search",
    "reconstruct_pose": "inphase.apps.pose3d.reconstruct_pose",
    "smooth_dtw": "inphase.align",
    "soft_dtw": "inphase.align",
    "synchronize": "inphase.apps.align_videos",
    "train": "inphase.training",
    "transfer_labels": "inphase.apps.transfer_labels",
    "verify_store": "inphase.corpus.verify_store",
    "write_playback": "inphase.playback",
}


def __getattr__(name: str) -> object:
    """Import a public name from the module that defines it."""
    if name not in _HOME:
        raise AttributeError(f"module 'inphase' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """List the public names, for completion, and the modules imported so far."""
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING", "import_module", "logging"})
