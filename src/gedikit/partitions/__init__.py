"""Partitions of the data to start from: candidates, the choice among them, and how many groups there are."""

from gedikit.partitions.choice import Partition, PartitionChoice, choose_partition
from gedikit.partitions.number import NumberChoice, choose_number

__all__ = ["NumberChoice", "Partition", "PartitionChoice", "choose_number", "choose_partition"]
