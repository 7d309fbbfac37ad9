"""3-D pose from aligned videos: every moment of one video is seen by the cameras of all.

partners = choose_partners(encoder, query, others, count=19)
views = gather(query, [others[partner.index] for partner in partners], [partner.seconds for partner in partners])
found = reconstruct(views)                  # found.joints3d [T, J, 3]
"""

from inphase.apps.pose3d.adjustment import Priors
from inphase.apps.pose3d.reconstruct import Reconstruction, reconstruct
from inphase.apps.pose3d.reconstruction_files import read_reconstruction, write_reconstruction
from inphase.apps.pose3d.views import Performance, Views, choose_partners, gather

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
