"""Reconstruct 3-D pose from aligned videos: every frame of one video has a view from each of the others.

found = inphase.reconstruct_pose(["query.mp4", *others])          # from video files
views = gather(query, others, seconds)                            # from joints and time maps
found = reconstruct(views)                                        # found.joints3d [T, J, 3]
"""

from inphase.apps.pose3d.adjustment import Priors
from inphase.apps.pose3d.reconstruct import reconstruct
from inphase.apps.pose3d.reconstruction_files import read_reconstruction, write_reconstruction
from inphase.apps.pose3d.views import Performance, Reconstruction, Views, choose_partners, gather

__all__ = [
    "Performance",
    "Priors",
    "Reconstruction",
    "Views",
    "choose_partners",
    "gather",
    "read_reconstruction",
    "reconstruct",
    "write_reconstruction",
]
