"""Partitions of the data to start from: candidates, the choice among them, and how many groups there are."""

from gedikit.partitions.candidates import BALANCED
from gedikit.partitions.choice import Partition, PartitionChoice, choose_partition
from gedikit.partitions.number import NumberChoice, choose_number

__all__ = ["BALANCED", "NumberChoice", "Partition", "PartitionChoice", "choose_number", "choose_partition"]
