"""Draw the paper's Figure 3: the penalties of smoothMin and min^γ over the minimum of three costs r1 ≤ r2 ≤ r3."""

from pathlib import Path

import torch
from matplotlib.figure import Figure

from inphase.align import min_gamma_penalty, smooth_min_penalty

FILE = Path("out/minima/figure3.png")

delta = torch.linspace(0, 6, 601, dtype=torch.float64)  # r2 − r1, in units of γ
zero, far = torch.zeros_like(delta), torch.full_like(delta, 1e6)
cases = {"r3 = r2": torch.stack([zero, delta, delta], 1), "r3 → ∞": torch.stack([zero, delta, far], 1)}

figure = Figure(figsize=(6, 4), layout="constrained")
axis = figure.subplots()
axis.axhline(0, color="grey", linewidth=0.8)
for (case, r), line in zip(cases.items(), ("-", "--"), strict=True):
    smooth = smooth_min_penalty(r, gamma=1)
    axis.plot(delta, smooth, color="C0", linestyle=line, label=f"smoothMin, {case}")
    axis.plot(delta, min_gamma_penalty(r, gamma=1), color="C3", linestyle=line, label=f"min$^γ$, {case}")
    peak = int(smooth.argmax())
    axis.plot(delta[peak], smooth[peak], "o", color="C0")
    print(f"{case}: smoothMin adds at most {smooth[peak]:.4f} γ, at Δ = {delta[peak]:.2f} γ")
axis.axvline(1.5, color="grey", linestyle=":", linewidth=1)
axis.annotate("watershed ≈ 1.5 γ", (1.6, -0.95), color="grey")
axis.annotate("← ties rewarded", (1.35, 0.51), color="C0", ha="right", fontsize="small")
axis.annotate("separation rewarded →", (1.65, 0.51), color="C0", fontsize="small")
axis.set(xlabel="Δ = r2 − r1, in γ", ylabel="penalty d = s(r) − min(r), in γ", xlim=(0, 6), ylim=(-1.15, 0.6))
axis.legend(loc="lower right", fontsize="small")

FILE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(FILE, dpi=120)
print(f"wrote {FILE}")
