"""What the weights of torchvision and timm were trained with, as the libraries say: for the tables of docs/your-model.md.

    .venv/torch/bin/python tools/recipes.py      # timm, too, if it is installed
"""

from __future__ import annotations

import collections


def torchvision_recipes():
    """By (size of the shorter side, of the crop, interpolation, mean, deviation): names of networks and weights."""
    from torchvision import models

    found = collections.defaultdict(list)
    for name in models.list_models(module=models):
        for weights in models.get_model_weights(name):
            how = weights.transforms()
            key = (how.resize_size[0], how.crop_size[0], how.interpolation.value, tuple(how.mean), tuple(how.std))
            found[key].append(f"{name}:{weights.name.removeprefix('IMAGENET1K_')}")
    return dict(found)


def timm_recipes():
    """By (mean, deviation, interpolation, crop mode): how many weights by crop_pct."""
    import timm

    found = collections.defaultdict(collections.Counter)
    for name in timm.list_pretrained():
        how = timm.get_pretrained_cfg(name)
        found[tuple(how.mean), tuple(how.std), how.interpolation, how.crop_mode][how.crop_pct] += 1
    return dict(found)


def main():
    recipes = sorted(torchvision_recipes().items(), key=lambda item: -len(item[1]))
    print(f"torchvision, {sum(len(names) for _, names in recipes)} weights: shorter side, crop, interpolation, mean, deviation")
    for key, names in recipes:
        print(f"{len(names):4}  {key}: {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}")
    try:
        recipes = sorted(timm_recipes().items(), key=lambda item: -item[1].total())
    except ImportError:
        print("timm is not installed")
        return
    print(f"timm, {sum(counts.total() for _, counts in recipes)} weights: mean, deviation, interpolation, crop mode; crop_pct")
    for key, counts in recipes:
        print(f"{counts.total():4}  {key}: {', '.join(f'{part} ({n})' for part, n in counts.most_common(4))}")


if __name__ == "__main__":
    main()
