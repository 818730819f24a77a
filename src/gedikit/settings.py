"""Every number that steers a fit, in one place, with the value that works by default."""

import dataclasses
import types
import typing
from dataclasses import dataclass
from typing import Any, Self

from gedikit.data.alike import MEASURES
from gedikit.data.augment import PRESETS
from gedikit.errors import UsageError


@dataclass(frozen=True)
class Settings:
    """One value per knob; `methods` says which of them a method changes."""

    # weights of the loss terms
    generative: float = 1.0
    invariance: float = 10.0
    prior: float = 30.0
    constraint: float = 25.0  # rules that examples satisfy
    reading: float = 25.0  # what clusters of neighbours, named by a rule if there is one, say before the training
    uniformity: float = 400.0  # minus the entropy of the mean posterior, in place of the prior
    symmetric: str = "off"  # invariance, prior and constraint of x′ as well as of x: on | off
    energy_l2: float = 0.0
    largest_gap: float = 0.0  # chains that are this many nats behind the data teach nothing; 0: whatever they are

    discriminative: float = 1.0  # of the self-supervised term of a method that has neither invariance nor prior

    # self-supervised terms
    similarity: str = "cosine"  # infonce: cosine | euclidean | dot
    similarity_temperature: float = 0.5  # infonce, simclr, kscl; contrastive energy
    shots: int = 3  # kscl: views an instance is made of
    teacher_temperature: float = 0.04  # protocpc
    off_diagonal: float = 0.0051  # barlow-twins
    vicreg_invariance: float = 25.0
    vicreg_variance: float = 25.0
    vicreg_covariance: float = 1.0
    shrinkage: float = 1e-3  # w-mse: of the covariance towards the identity
    corinfomax_invariance: float = 250.0
    covariance_momentum: float = 0.9  # corinfomax: how much of the running covariance is kept
    distortion: float = 0.06  # mec
    sinkhorn_epsilon: float = 0.05  # swav, sela
    sinkhorn_iterations: int = 3  # swav
    queue: int = 0  # swav: earlier rows that take part in balancing
    freeze_prototypes: int = 0  # iterations during which the cluster centres stay as they are
    assign_every: int = 10  # deepcluster, sela: iterations between assignments
    references: int = 256  # contrastive energy: rows in the bank
    flow_transforms: int = 3
    flow_hidden: tuple[int, ...] = (64, 64)
    labels: str = "auto"  # auto (the method's) | posterior | projection | k-means

    # network
    network: str = "default"  # default | paper | paper-normalised | resnet8
    width: int = 128  # resnet8: channels of its convolutions, and features
    head: str = "linear"  # linear | cosine: logits from inner products or from unit vectors
    hidden: tuple[int, ...] = (128, 128)
    features: int = 64
    activation: str = "silu"
    projection: int = 0  # outputs of a linear projector; 0: the features are the embedding
    frequencies: int = 64
    detail: float = 0.06  # Fourier frequency times the data's kernel bandwidth
    temperature: float = 1.0

    # data
    image_shape: tuple[int, ...] = ()  # (height, width, channels) where rows are images, for resnet8
    scaling: str = "auto"  # auto | features | global | none
    augmentation: str = "walk"  # walk | noise, or a preset for images
    noise: float = 0.5  # of the views, in noise_unit
    noise_unit: str = "bandwidth"  # bandwidth | absolute
    image_walks: str = "off"  # images: x′ is made of a neighbour instead of x itself: on | off
    walk_by: str = "pixels"  # images: what neighbours have in common: pixels | outlines
    walk_copies: int = 0  # images: neighbours are those of an image or of this many changed copies of it
    neighbours: int = 10
    walk_hold: float = 0.3  # share of the training with the longest walks
    walk_end: float = 0.8  # from here on single steps
    spectral_start: float = 0.0  # share of a stage that looks for clusters: those of neighbours are targets
    margin: float = 0.5  # of the domain around the data, in scaled units

    # model samples
    sampler: str = "auto"  # auto | importance | mala | sgld
    negatives: int = 400  # model samples or proposals an iteration
    bank: int = 30_000  # proposals drawn and scored once
    buffer: int = 2000  # persistent chains
    buffer_start: str = "data"  # data | noise | gaussian (of the data's mean and covariance)
    restart: float = 0.0
    steps: int = 5
    step_size: float = 0.25  # mala: first step, in bandwidths; sgld: α
    noise_std: float = 0.01  # sgld: σ
    bounds: str = "reflect"  # sgld: none | reflect | reject | clip
    buffer_dtype: str = "float32"  # what the chains wait in: float32 | bfloat16 | uint8

    # optimiser
    iterations: int = 3000
    epochs: int = 0  # images: passes over the data instead of iterations
    batch_size: int = 400
    learning_rate: float = 1e-3
    warmup: int = 100
    decay_from: float = 0.5
    decay_to: float = 0.01
    average: float = 0.999
    weight_decay: float = 0.0

    # running
    precision: str = "auto"  # of convolutions: auto (bfloat16 on a GPU) | float32 | bfloat16
    acceleration: str = "auto"  # compiled and captured iterations on a GPU: auto | off
    log_every: int = 25
    checkpoint_every: int = 500
    max_rollbacks: int = 4
    threads: int = 1  # of the CPU while training; more are slower for small networks, and 0 leaves torch alone

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise UsageError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be positive, not {getattr(self, name)!r}")
        for name in _SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} must lie between 0 and 1, not {getattr(self, name)!r}")
        for name in _NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must not be negative, not {getattr(self, name)!r}")
        if self.walk_hold >= self.walk_end:
            raise UsageError(f"walk_hold ({self.walk_hold}) must come before walk_end ({self.walk_end})")

    def replace(self, **changes: Any) -> Self:
        """A copy with some values changed; unknown names and impossible values are refused."""
        kinds = typing.get_type_hints(type(self))
        coerced = {}
        for name, value in changes.items():
            if name not in kinds:
                raise UsageError(f"there is no setting {name!r}; there are: {', '.join(sorted(kinds))}")
            coerced[name] = _coerce(name, value, kinds[name])
        return dataclasses.replace(self, **coerced)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def parse_assignments(pairs: typing.Sequence[str]) -> dict[str, str]:
    """["key=value", …] as typed on a command line."""
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set takes key=value, not {pair!r}")
        parsed[name.strip()] = value.strip()
    return parsed


_CHOICES = {
    "similarity": ("cosine", "euclidean", "dot"),
    "labels": ("auto", "posterior", "projection", "k-means"),
    "network": ("default", "paper", "paper-normalised", "resnet8"),
    "head": ("linear", "cosine"),
    "activation": ("silu", "gelu", "softplus", "tanh", "relu"),
    "scaling": ("auto", "features", "global", "none"),
    "augmentation": ("walk", "noise", *PRESETS),
    "noise_unit": ("bandwidth", "absolute"),
    "sampler": ("auto", "importance", "mala", "sgld"),
    "buffer_start": ("data", "noise", "gaussian"),
    "bounds": ("none", "reflect", "reject", "clip"),
    "symmetric": ("on", "off"),
    "image_walks": ("on", "off"),
    "walk_by": tuple(MEASURES),
    "buffer_dtype": ("float32", "bfloat16", "uint8"),
    "precision": ("auto", "float32", "bfloat16"),
    "acceleration": ("auto", "off"),
}
_POSITIVE = (
    *("similarity_temperature", "shots", "teacher_temperature", "distortion", "sinkhorn_epsilon"),
    *("sinkhorn_iterations", "assign_every", "references", "flow_transforms"),
    *("features", "width", "detail", "temperature", "neighbours", "margin", "negatives", "bank", "buffer", "steps"),
    *("step_size", "iterations", "batch_size", "learning_rate", "log_every", "checkpoint_every"),
)
_NOT_NEGATIVE = (
    *("discriminative", "off_diagonal", "vicreg_invariance", "vicreg_variance", "vicreg_covariance"),
    *("corinfomax_invariance", "queue", "freeze_prototypes", "projection"),
    *(
        "generative",
        "invariance",
        "prior",
        "energy_l2",
        "constraint",
        "reading",
        "uniformity",
        "largest_gap",
        "frequencies",
        "noise",
        "noise_std",
        "warmup",
    ),
    *("max_rollbacks", "threads", "epochs", "weight_decay", "walk_copies"),
)
_SHARES = (
    "shrinkage",
    "covariance_momentum",
    "walk_hold",
    "walk_end",
    "spectral_start",
    "restart",
    "decay_from",
    "decay_to",
    "average",
)


def _coerce(name: str, value: Any, kind: Any) -> Any:
    """`value`, or its text from a command line or TOML file, as the setting's type."""
    try:
        if typing.get_origin(kind) is tuple:
            items = value.strip("()[] ").split(",") if isinstance(value, str) else value
            return tuple(int(v) for v in items if str(v).strip())
        if kind is int and (isinstance(value, bool) or float(value) != int(float(value))):
            raise ValueError
        if isinstance(kind, types.UnionType) or kind is bool:
            raise TypeError
        return int(float(value)) if kind is int else kind(value)
    except (TypeError, ValueError):
        wanted = "a list of whole numbers" if typing.get_origin(kind) is tuple else kind.__name__
        raise UsageError(f"{name} must be {wanted}, not {value!r}") from None
