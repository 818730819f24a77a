"""What the paper prints, over five runs: Tables thm_toy and nmi_toy (NMI), and nesy_result."""

NAMES = {
    "jem": "JEM",
    "gedi-no-prior": "GEDI no prior",
    "gedi-no-inv": "GEDI no inv",
    "gedi-no-gen": "GEDI no gen",
    "gedi": "GEDI",
    "gedi-two-stage": "GEDI two-stage",
    "barlow-twins": "Barlow Twins",
    "swav": "SwAV",
}
ABLATION = ("jem", "gedi-no-prior", "gedi-no-inv", "gedi-no-gen", "gedi")
COMPARISON = ("jem", "barlow-twins", "swav", "gedi-no-gen", "gedi")

NMI = {
    ("moons", "jem"): (0.00, 0.00),
    ("moons", "gedi-no-prior"): (0.00, 0.00),
    ("moons", "gedi-no-inv"): (0.11, 0.15),
    ("moons", "gedi-no-gen"): (0.98, 0.00),
    ("moons", "gedi"): (0.94, 0.07),
    ("moons", "barlow-twins"): (0.22, 0.10),
    ("moons", "swav"): (0.76, 0.36),
    ("circles", "jem"): (0.00, 0.00),
    ("circles", "gedi-no-prior"): (0.00, 0.00),
    ("circles", "gedi-no-inv"): (0.22, 0.13),
    ("circles", "gedi-no-gen"): (0.83, 0.12),
    ("circles", "gedi"): (1.00, 0.01),
    ("circles", "barlow-twins"): (0.13, 0.10),
    ("circles", "swav"): (0.00, 0.00),
}

# accuracy and NMI, median ± standard deviation
ADDITION = {
    ("nesy", 100): ("0.10 ± 0.00", "0.00 ± 0.00"),
    ("nesy", 1000): ("0.10 ± 0.00", "0.00 ± 0.00"),
    ("nesy", 10_000): ("0.10 ± 0.00", "0.00 ± 0.00"),
    ("gedi", 100): ("0.08 ± 0.01", "0.22 ± 0.03"),
    ("gedi", 1000): ("0.09 ± 0.03", "0.29 ± 0.06"),
    ("gedi", 10_000): ("0.11 ± 0.05", "0.44 ± 0.10"),
    ("gedi-nesy", 100): ("0.42 ± 0.02", "0.35 ± 0.01"),
    ("gedi-nesy", 1000): ("0.96 ± 0.01", "0.91 ± 0.01"),
    ("gedi-nesy", 10_000): ("0.97 ± 0.00", "0.93 ± 0.00"),
}

# Tables nmi_real and acc over five seeds, for each method of COMPARISON
IMAGE_EPOCHS = {"svhn": 20, "cifar10": 200, "cifar100": 200}
IMAGE_NMI = {
    "svhn": ("0.00 ± 0.00", "0.20 ± 0.02", "0.21 ± 0.01", "0.27 ± 0.04", "0.25 ± 0.04"),
    "cifar10": ("0.00 ± 0.00", "0.17 ± 0.04", "0.44 ± 0.01", "0.45 ± 0.00", "0.44 ± 0.01"),
    "cifar100": ("0.00 ± 0.00", "0.61 ± 0.05", "0.51 ± 0.21", "0.87 ± 0.00", "0.87 ± 0.00"),
}
IMAGE_FID = {
    "svhn": ("201 ± 36", "334 ± 28", "480 ± 67", "488 ± 43", "193 ± 10"),
    "cifar10": ("223 ± 15", "382 ± 22", "410 ± 31", "403 ± 9", "214 ± 13"),
    "cifar100": ("271 ± 85", "403 ± 28", "420 ± 26", "435 ± 11", "226 ± 9"),
}
IMAGE_PROBE = {
    "svhn": ("0.20 ± 0.00", "0.75 ± 0.01", "0.44 ± 0.04", "0.59 ± 0.02", "0.54 ± 0.01"),
    "cifar10": ("0.24 ± 0.00", "0.65 ± 0.00", "0.50 ± 0.02", "0.63 ± 0.01", "0.63 ± 0.01"),
    "cifar100": ("0.03 ± 0.00", "0.27 ± 0.01", "0.14 ± 0.01", "0.31 ± 0.01", "0.31 ± 0.01"),
}
# Tables oodsvhn, oodCIFAR-10 and oodCIFAR-100: trained on the first, told from the second by the gradient
IMAGE_OOD = {
    ("svhn", "cifar10"): ("0.73", "0.17", "0.26", "0.10", "0.80"),
    ("svhn", "cifar100"): ("0.72", "0.24", "0.32", "0.15", "0.80"),
    ("cifar10", "svhn"): ("0.44", "0.32", "0.62", "0.11", "0.57"),
    ("cifar10", "cifar100"): ("0.53", "0.56", "0.51", "0.51", "0.61"),
    ("cifar100", "svhn"): ("0.44", "0.45", "0.30", "0.55", "0.53"),
    ("cifar100", "cifar10"): ("0.49", "0.43", "0.47", "0.46", "0.48"),
}
