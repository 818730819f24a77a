"""What the paper prints, over five runs: Tables thm_toy and nmi_toy (NMI), and nesy_result."""

NAMES = {
    "jem": "JEM",
    "gedi-no-prior": "GEDI no prior",
    "gedi-no-inv": "GEDI no inv",
    "gedi-no-gen": "GEDI no gen",
    "gedi": "GEDI",
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

# Tables nmi_real, acc and ood…, GEDI: 20 epochs of SVHN, 200 of CIFAR-10; NMI probably is a mean over batches
IMAGES = {
    ("svhn", "NMI, mean over batches"): "0.25 ± 0.04",
    ("svhn", "linear probe"): "0.54 ± 0.01",
    ("svhn", "FID"): "193 ± 10",
    ("svhn", "outliers, AUROC by gradient"): "0.80",
    ("cifar10", "NMI, mean over batches"): "0.44 ± 0.01",
    ("cifar10", "linear probe"): "0.63 ± 0.01",
    ("cifar10", "FID"): "214 ± 13",
    ("cifar10", "outliers, AUROC by gradient"): "0.57",
}
