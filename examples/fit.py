"""From texts and labels in memory to a model that is saved and loaded again.

python examples/fit.py
"""

import random
import tempfile
from pathlib import Path

import owlmine

WORDS = {
    "baking": "oven flour butter dough yeast sugar crust",
    "cycling": "pedal saddle chain helmet gravel sprint tyre",
    "gardening": "soil seeds compost pruning tulip spade mulch",
    "music": "guitar chord rhythm melody violin concert tempo",
    "sailing": "keel harbour rudder knot tide mast anchor",
    "weather": "cloud storm forecast humid thunder breeze frost",
}
COMMON = ["today", "new", "good", "small", "about", "with", "every", "first", "again", "here"]
generator = random.Random(0)


def text_about(topics: list[str]) -> str:
    words = [word for topic in topics for word in generator.sample(WORDS[topic].split(), 3)]
    words += generator.sample(COMMON, 3)
    generator.shuffle(words)
    return " ".join(words)


labels = [generator.sample(sorted(WORDS), generator.choice((1, 2))) for _ in range(600)]
texts = [text_about(topics) for topics in labels]
model = owlmine.fit(texts, labels, class_names={name: name.title() for name in WORDS}, options={"epochs": 3})
print(model)
print(f"P@1 on held-out points: {model.record.figures['P@1']:.1f} %")

queries = ["the mast broke in a storm", "butter and flour for the dough"]
for query, answers in zip(queries, model.predict(queries, k=2), strict=True):
    print(f"{query}:", ", ".join(f"{answer.name} {answer.probability:.0%}" for answer in answers))

with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "model")
    loaded = owlmine.load(Path(folder) / "model")
    print("the loaded model answers the same:", loaded.predict(queries, k=2) == model.predict(queries, k=2))

test_labels = [[name] for name in WORDS for _ in range(20)]
evaluation = model.evaluate([text_about(topics) for topics in test_labels], test_labels, ks=[1])
print(f"P@1 on new texts: {evaluation.figures['P@1']:.1f} %")
