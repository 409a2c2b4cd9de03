"""Mined BOWL inside somebody's own two-tower model: one tower for queries, one for items, synthetic data.

    python examples/two_tower.py

The marked lines are all that mining adds to an ordinary training loop.
"""

import torch
from torch import nn

from owlmine.losses import MinedLoss, top_k
from owlmine.mining import draw_batch_pool

NUM_ITEMS, NUM_TRAIN, NUM_TEST, WIDTH, POOL_SIZE = 2000, 4000, 500, 32, 128

torch.manual_seed(0)
item_features = torch.randn(NUM_ITEMS, WIDTH)
wanted = torch.randint(NUM_ITEMS, (NUM_TRAIN + NUM_TEST,))
query_features = item_features[wanted].flip(1) + 0.5 * torch.randn(NUM_TRAIN + NUM_TEST, WIDTH)

query_tower = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH))
item_tower = nn.Linear(WIDTH, WIDTH)
loss = MinedLoss(top_k(4, pool_size=POOL_SIZE), kind="bowl", phi="logistic", scale=5.0, learn_scale=True)  # mining
parameters = [*query_tower.parameters(), *item_tower.parameters(), *loss.parameters()]
optimizer = torch.optim.Adam(parameters, lr=5e-3)
generator = torch.Generator().manual_seed(1)


def unit(vectors: torch.Tensor) -> torch.Tensor:
    return nn.functional.normalize(vectors, dim=1)


@torch.no_grad()
def recall_at_10() -> float:
    scores = unit(query_tower(query_features[NUM_TRAIN:])) @ unit(item_tower(item_features)).T
    return (scores.topk(10, dim=1).indices == wanted[NUM_TRAIN:, None]).any(dim=1).double().mean().item()


for step in range(151):
    batch = torch.randint(NUM_TRAIN, (64,), generator=generator)
    positives = wanted[batch]
    pool = draw_batch_pool(positives, num_classes=NUM_ITEMS, pool_size=POOL_SIZE, generator=generator)  # mining
    queries = unit(query_tower(query_features[batch]))
    positive_scores = (queries * unit(item_tower(item_features[positives]))).sum(dim=1)
    pool_scores = queries @ unit(item_tower(item_features[pool.shared_ids])).T  # mining
    value = loss(positive_scores, pool_scores, pool.mask())  # mining
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step:3d}   loss {value.item():.3f}   recall@10 {100 * recall_at_10():.1f} %")
