"""What a plan takes where nothing was asked for: settings of vectors, of images, of their sizes and starts."""

from gedikit.components import Tree

# share of the iterations that a fit takes which starts from a partition, with few and with many columns
STARTED_FEW, STARTED_MANY, STARTED_IMAGES = 0.25, 0.14, 0.4
STARTED_LEAST = 200  # iterations
STARTED_RATE = 3e-3  # of learning, with columns: the groups are there, and steps can be larger
FAINT = 0.5  # the same where groups overlap so much that there is no partition to start from
MIRRORED = 0.56  # flips are used where mirroring moves at most this share of the images away from the others

VECTORS: Tree = {
    "data": {"name": "vector"},
    "encoder": {"name": "fourier-mlp"},
    "views": {"name": "walk"},
    "similarity": {"name": "euclidean"},
}
# the partition says which rows belong together; walks are single steps that settle where the borders run
STARTED: Tree = {
    "views": {"hold": 0.0, "end": 0.01},
    "objectives": {"pseudo-labels": {"share": 0.7}},
}
STARTED_BY_IMAGES: Tree = {"objectives": {"pseudo-labels": {"started": True}}}
_BOTH = {"symmetric": True}  # x is left as it is for its density, so x′ is of another kind
IMAGES: Tree = {
    "data": {"name": "image"},
    "encoder": {"name": "resnet8"},
    "views": {"name": "augment"},
    "similarity": {"name": "pixels"},
    "sampler": {
        "name": "sgld",
        "step_size": 1.0,
        "noise_std": 0.01,
        "bounds": "clip",
        "start": "gaussian",
        "restart": 0.05,
    },
    "objectives": {
        # the prior above the invariance: else one constant posterior for every image is a way out
        "invariance": {"weight": 25.0, **_BOTH},
        "prior": {"weight": 50.0, **_BOTH},
        "constraint": _BOTH,
        "pseudo-labels": _BOTH,
    },
    "optimiser": {"learning_rate": 5e-4, "decay_from": 0.5, "decay_to": 0.05},
}
RULES_ON_IMAGES: Tree = {"optimiser": {"clip": 2.0}}  # rules begin to count all at once
EXAMPLE = 3  # images, as many as the paper's examples have; longer ones count as much an image, not an example
IMAGE_DENSITY: Tree = {"l2": 0.001, "largest_gap": 5.0}
SIZES: dict[str, Tree] = {
    "small": {
        "encoder": {"width": 32},
        "sampler": {"steps": 5, "samples": 32, "chains": 2000},
        "similarity": {"copies": 8},
        "optimiser": {"batch_size": 64, "iterations": 800, "warmup": 50},
    },
    "medium": {
        "encoder": {"width": 64},
        "sampler": {"steps": 10, "samples": 128, "chains": 5000},
        "similarity": {"copies": 16},
        "optimiser": {"batch_size": 128, "iterations": 3000, "warmup": 200},
    },
    "large": {
        "encoder": {"width": 128},
        "sampler": {"steps": 20, "samples": 256, "chains": 10_000},
        "similarity": {"copies": 32},
        "optimiser": {"batch_size": 256, "iterations": 10_000, "warmup": 500},
    },
}
SAFE: Tree = {"rotation": 10.0, "shear": 5.0, "zoom": (0.85, 1.15), "translation": 0.1, "noise": 0.1}
SAFE_COLOURS: Tree = {
    "crop_area": (0.3, 1.0),
    "jitter": 0.8,
    "brightness": 0.4,
    "contrast": 0.4,
    "saturation": 0.4,
    "hue": 0.1,
    "grey": 0.2,
    "noise": 0.03,
}
