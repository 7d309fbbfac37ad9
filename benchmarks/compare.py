"""Check the warnings of `inphase compare` on golf swings from two sides: `python -m benchmarks.compare`.

Compares every ordered pair of ten swings from the front and ten along the line of the ball (GolfDB, splits 2 and 3, in
$INPHASE_DATA) by body pose, and counts how often differing views are warned of, and mirror images suggested. Also
prints the error of the events carried over between equal views, by confidence. About two minutes without a cache.
"""

import csv
import itertools
import os
from collections import Counter
from pathlib import Path

import numpy as np

from inphase.apps.compare_videos import compare_embeddings, read_marks
from inphase.apps.labels import Event, Labels
from inphase.media.recording import open_recordings
from inphase.models.embed_videos import embed_each
from inphase.models.weights import load_shipped
from inphase.storage.cache import open_cache

EVENTS = ("address", "toe_up", "mid_backswing", "top", "mid_downswing", "impact", "mid_follow_through", "finish")
FPS = 30.0


def main() -> None:
    """Compare all pairs and print the counts."""
    root = Path(os.environ["INPHASE_DATA"]) / "golfdb"
    with (root / "index.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] in ("2", "3")]
    chosen = [row for view in ("face-on", "down-the-line") for row in [r for r in rows if r["view"] == view][:10]]
    paths = [root / "videos" / f"{row['id']}.mp4" for row in chosen]
    embeddings, failed = embed_each(paths, encoder=load_shipped("pose"), cache=open_cache(None))
    print("left out:", failed or "none")
    videos = {video.path: video for video in open_recordings(list(embeddings))}
    views: Counter[tuple[str, str]] = Counter()
    errors, confidences = [], []
    for (a, pro), (b, student) in itertools.permutations(zip(chosen, paths, strict=True), 2):
        if pro not in embeddings or student not in embeddings:
            continue
        labels = Labels(events=tuple(Event(int(a[name]) / FPS, name) for name in EVENTS))
        marks = read_marks(videos[pro], labels, phases=4)
        found = compare_embeddings((videos[pro], embeddings[pro]), (videos[student], embeddings[student]), marks=marks)
        kind = "same view" if a["view"] == b["view"] else "different views"
        warnings = " ".join(found.warnings)
        views[kind, "warned of views" if "views differ" in warnings else "not warned of views"] += 1
        views[kind, "mirror suggested"] += "mirror" in warnings
        if kind == "same view":
            errors += [abs(p.student * FPS - int(b[name])) for p, name in zip(found.positions, EVENTS, strict=True)]
            confidences += [position.confidence or 0.0 for position in found.positions]
    for (kind, what), count in sorted(views.items()):
        print(f"{kind:16} {what:20} {count}")
    error, confidence = np.array(errors), np.array(confidences)
    for limit in (0.1, 0.2, 0.3):
        below = confidence < limit
        print(
            f"confidence below {limit}: {below.mean():.0%} of events, median error {np.median(error[below]):.1f}, "
            f"above: {np.median(error[~below]):.1f}"
        )


if __name__ == "__main__":
    main()
