"""From the dense model's candidates to the answer: judges, their mix, the order, probabilities."""

# The order of registration is the order in which judges are fitted and their scores are added.
from owlmine.rank.linear import LinearJudge  # isort: skip
from owlmine.rank.rarity import RarityJudge  # isort: skip
from owlmine.rank.neighbours import NeighbourJudge, VectorNeighbourJudge  # isort: skip
from owlmine.rank.names import NameJudge  # isort: skip
from owlmine.rank.candidates import Candidates, Encoded, find_candidates
from owlmine.rank.judge import JUDGES, Judge, JudgeSizes, Training, register
from owlmine.rank.mix import Evidence, Mix, choose_mix, default_mix
from owlmine.rank.ranker import Ranker

__all__ = [
    "JUDGES",
    "Candidates",
    "Encoded",
    "Evidence",
    "Judge",
    "JudgeSizes",
    "LinearJudge",
    "Mix",
    "NameJudge",
    "NeighbourJudge",
    "Ranker",
    "RarityJudge",
    "Training",
    "VectorNeighbourJudge",
    "choose_mix",
    "default_mix",
    "find_candidates",
    "register",
]
