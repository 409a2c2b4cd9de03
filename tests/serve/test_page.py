"""The page of the service in a browser: what people see, and what they can do."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import owlmine

from ..small_models import dense_model, sparse_model, text_point, workplace
from .running import Service

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = Path(__file__).parents[2] / ".ci" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium; .ci/browser installs it")

KEY = "a-key-of-the-tests-0123456789"
QUERY = "the river and the castle"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
VIEWS = {
    "empty": "#/words/search",
    "answers": f"#/words/search?text={QUERY}",
    "reasons": f"#/words/search?text={QUERY}&class=c-river",
    "many": "#/words/many",
    "model": "#/words/about",
    "vectors": "#/sparse/search?text=1:2 4:1",
}
# What the browser itself writes about an answer of 401 or 503, or about none.
BROWSER_MESSAGE = "Failed to load resource"

HOSTILE_NAMES = {
    "c-river": "<script>alert(1)</script>",
    "c-castle": "\u202eelbisrever\u202c castle",
    "c-violin": "violin \x1b[31mred",
    "c-falcon": "صقر الصحراء",
    "c-copper": "=1+1",
}
HOSTILE_CARD = """# A card

<img src=x onerror=alert(2)> and `code`, **strong**, [a link](https://example.org/), [bad](javascript:alert(3)).

| a | b |
|---|---|
| 1 | 2 |
"""

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def words_model() -> Path:
    """All judges, probabilities, texts of points, names that try to do harm, a picture, and a card with markup."""
    from matplotlib.figure import Figure

    points = [text_point(number) for number in range(240)]
    options = {"dim": 16, "epochs": 4, "batch_size": 16, "validation": 0.3, "neighbours": 5, "keep_texts": True}
    model = owlmine.fit(
        [point["text"] for point in points],
        [point["labels"] for point in points],
        class_names=HOSTILE_NAMES,
        options={**options, "device": "cpu"},
    )
    folder = workplace() / "words"
    model.save(folder)
    (folder / "README.md").write_text(HOSTILE_CARD)
    Figure(figsize=(2, 1)).savefig(folder / "evaluation.png")
    return folder


@pytest.fixture(scope="module")
def stage(words_model: Path) -> Iterator[tuple[Any, str]]:
    """A browser, and the address of a service."""
    from playwright.sync_api import sync_playwright

    service = Service(f"words={words_model}", f"sparse={sparse_model()}", f"dense={dense_model()}")
    with sync_playwright() as playwright:  # While the service starts.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        with service:
            yield browser, address_of(service)
        browser.close()


def address_of(service: Service) -> str:
    return f"http://127.0.0.1:{service.port}/"


@pytest.fixture
def open_page(stage: tuple[Any, str]) -> Iterator[Open]:
    """Opens a view. Whatever the page does, it asks no other host, logs no error and runs no code from data."""
    browser, address = stage
    contexts: list[Any] = []
    problems: list[str] = []

    def open_view(hash: str = "#/words/search", *, at: str = address, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        host = urlsplit(at).netloc
        page.on("request", lambda request: _check_host(request.url, host, problems))
        page.on("console", lambda message: _check_message(message, problems))
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        page.goto(at + hash)
        return page

    yield open_view
    for context in contexts:
        context.close()
    assert not problems


def _check_host(url: str, host: str, problems: list[str]) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("blob", "data") and parts.netloc != host:
        problems.append(f"request: {url}")


def _check_message(message: Any, problems: list[str]) -> None:
    if message.type in ("error", "warning") and not message.text.startswith(BROWSER_MESSAGE):
        problems.append(f"console: {message.text}")


def names(page: Any) -> list[str]:
    return page.locator("#list .name").all_text_contents()


def wait_for_answers(page: Any, best: str = "") -> None:
    page.locator("#list li:first-child .name", has_text=best).wait_for()


def wait_for_progress(page: Any, text: str) -> None:
    page.locator("#progress-text", has_text=text).wait_for()


def test_answers_appear_as_one_types(open_page: Open) -> None:
    page = open_page()
    page.get_by_text("Answers appear here as you type").wait_for()
    page.keyboard.type("the violin")  # The text has the focus.
    wait_for_answers(page, "violin")
    page.keyboard.type(" and the meadow")
    page.locator("#list .name", has_text="c-meadow").wait_for()
    assert page.locator(".answer").count() == 5
    shares = [float(text.strip("<%")) for text in page.locator(".answer .share").all_text_contents()]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 50
    page.get_by_text("5 classes. Best: ").wait_for(state="attached")


def test_an_answer_that_comes_late_is_dropped(open_page: Open) -> None:
    page, held = open_page(), []
    page.get_by_text("Answers appear here").wait_for()

    def hold_the_first(route: Any) -> None:
        held.append(route) if not held else route.fallback()

    page.route("**/predict", hold_the_first)
    page.keyboard.type("violin")
    page.wait_for_timeout(300)
    assert len(held) == 1
    page.locator("#query").fill("lantern")
    wait_for_answers(page, "c-lantern")
    held[0].fallback()
    page.wait_for_timeout(200)
    assert names(page)[0] == "c-lantern"


def test_a_text_that_is_taken_back_keeps_its_answer(open_page: Open) -> None:
    page = open_page("#/words/search?text=the violin")
    wait_for_answers(page, "violin")
    page.evaluate("""() => {
        for (const text of ["the lantern", "the violin"]) {
            document.querySelector("#query").value = text;
            document.querySelector("#query").dispatchEvent(new Event("input"));
        }
    }""")
    page.wait_for_timeout(400)
    assert "violin" in names(page)[0]
    assert page.locator("#answers").get_attribute("aria-busy") is None


def test_reasons_of_a_class(open_page: Open) -> None:
    page = open_page(f"#/words/search?text={QUERY}")
    page.locator(".answer", has_text="script").click()
    reasons = page.locator("#reasons")
    reasons.get_by_role("heading", name="<script>alert(1)</script>").wait_for()
    assert reasons.locator(".passage mark.for").first.text_content() == "river"
    assert reasons.locator(".passage").text_content() == QUERY
    parts = reasons.locator("section", has_text="Parts of the score")
    values = [text.replace("−", "-") for text in parts.locator(".value").all_text_contents()]
    total = float(parts.locator(".total span").last.text_content().replace("−", "-"))
    assert sum(map(float, values)) == pytest.approx(total, abs=0.01 * len(values))
    assert len(values) >= 4
    assert reasons.get_by_text("40 training examples").is_visible()
    voters = reasons.locator("section", has_text="Training points that voted").locator("li")
    assert voters.count() >= 2
    assert re.search(r"the river and the castle.*cosine 0\.\d\d", voters.first.text_content())
    # A similar class that is not in the answer has a name and neighbours, and no reasons.
    other = reasons.locator(".similar button", has_not_text="castle").last
    other_name = other.locator("bdi").text_content()
    other.click()
    reasons.get_by_role("heading", name=other_name).wait_for()
    assert page.evaluate("document.querySelector('#reasons').contains(document.activeElement)")
    reasons.get_by_role("button", name="Close reasons").click()
    assert page.get_by_text("Choose a class to see why").is_visible()


def test_reasons_follow_the_text(open_page: Open) -> None:
    page = open_page(f"#/words/search?text={QUERY}&class=c-river&k=1")
    page.get_by_role("heading", name="<script>").wait_for()
    page.locator("#query").fill("the lantern")
    page.get_by_role("heading", name="c-lantern").wait_for()
    page.locator("#query").fill("")
    page.get_by_text("Answers appear here").wait_for()
    assert page.locator("#reasons").is_hidden()


def test_the_address_has_model_text_settings_and_class(open_page: Open) -> None:
    page = open_page(f"#/words/search?text={QUERY}")
    wait_for_answers(page)
    page.get_by_label("Number of classes").select_option("3")
    page.locator("#list li").nth(3).wait_for(state="detached")
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Minimum probability").fill("0.5")
    page.locator("#list li").nth(2).wait_for(state="detached")
    page.locator(".answer").nth(1).click()
    page.locator(".class-head").wait_for()
    page.wait_for_url("**class=c-castle")
    shown = names(page), page.url
    assert len(shown[0]) == 2
    page.reload()
    page.locator(".class-head").wait_for()
    assert (names(page), page.url) == shown
    assert page.get_by_label("Minimum probability").input_value() == "0.5"
    page.get_by_role("link", name="Model").click()
    page.get_by_role("heading", name="A card").wait_for()
    page.go_back()
    page.locator(".class-head").wait_for()
    page.locator("#model").select_option("sparse")
    page.get_by_text("This model takes sparse vectors").wait_for()
    assert "#/sparse/search" in page.url


def test_nothing_known_and_nothing_probable(open_page: Open) -> None:
    page = open_page("#/words/search?text=xyzzy")
    page.get_by_text("The model knows none of these words.").wait_for()
    page.goto(page.url.replace("text=xyzzy", "text=quiet&least=0.95"))
    page.get_by_text("No class is that probable").wait_for()


def test_by_keyboard_alone(open_page: Open) -> None:
    page = open_page()
    focused = "document.activeElement.textContent"
    page.get_by_text("Answers appear here").wait_for()
    page.keyboard.type(QUERY)
    wait_for_answers(page, "script")
    page.keyboard.press("ArrowDown")
    assert names(page)[0] in page.evaluate(focused)
    page.keyboard.press("ArrowDown")  # Reasons are closed, so they stay closed.
    assert names(page)[1] in page.evaluate(focused)
    assert page.locator(".class-head").count() == 0
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=names(page)[1]).wait_for()
    page.keyboard.press("End")
    page.get_by_role("heading", name=names(page)[4], exact=True).wait_for()
    page.keyboard.press("Escape")
    page.locator(".class-head").wait_for(state="detached")
    assert names(page)[4] in page.evaluate(focused)
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "query"
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="<script>").wait_for()
    assert page.locator('#list button[tabindex="0"]').count() == 1
    page.keyboard.press("Control+k")
    assert page.evaluate("document.activeElement.id") == "query"
    page.get_by_role("button", name="Keyboard").press("Enter")
    page.get_by_role("heading", name="Keyboard").wait_for()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "keys"
    # Every stop of the Tab key is visible.
    stops = []
    page.evaluate("document.activeElement.blur()")
    while page.keyboard.press("Tab") or page.evaluate("document.activeElement !== document.body"):
        stops.append(page.evaluate("getComputedStyle(document.activeElement).outlineStyle"))
    assert len(stops) >= 8
    assert "none" not in stops


def rows_of_file(page: Any) -> list[dict[str, str]]:
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    assert download.value.suggested_filename.endswith(".csv")
    content = Path(download.value.path()).read_bytes().decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(content, newline="")))


def test_many_queries_as_a_table_and_a_file(open_page: Open) -> None:
    page, sizes = open_page("#/words/many?k=3"), []
    page.on(
        "request", lambda request: sizes.append(len(request.post_data_json["queries"])) if request.post_data else None
    )
    queries = [
        QUERY,
        '=HYPERLINK("http://example.org")',
        "xyzzy",
        "the copper, and the \u202e violin",
        *["a falcon"] * 96,
    ]
    page.locator("#lines").fill("\n".join(queries) + "\n\n")
    page.get_by_role("button", name="Predict").click()
    wait_for_progress(page, "100 of 100 queries")
    assert sum(sizes) == 100
    assert len(sizes) > 1
    assert page.locator("#table tbody tr").count() == 100
    assert "the model knows none of its features" in page.locator("#table tbody tr").nth(2).text_content()
    assert "⟨U+202E⟩" in page.locator("#table tbody tr").nth(3).text_content()
    rows = rows_of_file(page)
    assert [row["name"] for row in rows[:2]] == ["<script>alert(1)</script>", "\u202eelbisrever\u202c castle"]
    assert [row["rank"] for row in rows[:3]] == ["1", "2", "3"]
    assert all(0 <= float(row["probability"]) <= 1 for row in rows[:3])
    by_query = {int(row["row"]): row["query"] for row in rows}
    assert len(by_query) == 100
    assert by_query[2] == "'" + queries[1]  # No formula.
    assert by_query[4] == queries[3]
    assert {row["key"]: row["name"] for row in rows}["c-copper"] == "'=1+1"
    assert [row["key"] for row in rows if row["row"] == "3"] == [""]


def test_a_run_that_is_stopped_keeps_what_it_has(open_page: Open) -> None:
    page, requests = open_page("#/words/many?k=1"), []

    def hold_the_second(route: Any) -> None:
        requests.append(route)
        if len(requests) != 2:
            route.fallback()

    page.route("**/predict", hold_the_second)
    page.locator("#lines").fill("the river\n" * 50)
    page.locator("#lines").press("Control+Enter")
    wait_for_progress(page, "32 of 50 queries")
    assert page.get_by_role("progressbar").get_attribute("value") == "0.64"
    page.get_by_role("button", name="Stop").click()
    assert len(rows_of_file(page)) == 32
    assert page.get_by_role("button", name="Predict").is_enabled()


def test_lines_that_are_refused_do_not_stop_the_others(open_page: Open) -> None:
    page = open_page("#/sparse/many?k=1")
    page.locator("#lines").fill("1:2 4:1\n1:2 999:1\nabc\n0:1 7:2")
    page.get_by_role("button", name="Predict").click()
    wait_for_progress(page, "4 of 4 queries, 2 errors")
    rows = rows_of_file(page)
    assert [bool(row["key"]) for row in rows] == [True, False, False, True]
    assert "999" in rows[1]["error"]
    assert "wanted a number" in rows[2]["error"]


def test_a_service_that_goes_and_returns(open_page: Open) -> None:
    page = open_page(f"#/words/search?text={QUERY}")
    wait_for_answers(page)
    page.context.set_offline(True)
    page.locator("#query").fill("the lantern")
    page.get_by_text("The service does not answer.").wait_for()
    page.context.set_offline(False)
    page.get_by_role("button", name="Try now").click()
    wait_for_answers(page, "c-lantern")
    assert page.locator("#trouble").is_hidden()


@pytest.mark.parametrize(
    ("status", "message"), [(429, "more requests than it can answer"), (503, "The service is not ready")]
)
def test_a_service_that_has_no_time_is_asked_again(open_page: Open, status: int, message: str) -> None:
    page, refused = open_page(), []

    def refuse_once(route: Any) -> None:
        if refused:
            route.fallback()
        else:
            refused.append(route)
            body = json.dumps({"error": {"status": status, "message": "later", "request_id": "1"}})
            route.fulfill(status=status, body=body, headers={"Retry-After": "1"})

    page.route("**/predict", refuse_once)
    page.locator("#query").fill("the lantern")
    page.get_by_text(message).wait_for()
    wait_for_answers(page, "c-lantern")  # By itself.
    page.get_by_text(message).wait_for(state="hidden")


def test_an_error_of_the_service_is_shown(open_page: Open) -> None:
    page = open_page()
    body = json.dumps({"error": {"status": 500, "message": "an internal \u202eerror", "request_id": "1"}})
    page.route("**/predict", lambda route: route.fulfill(status=500, body=body))
    page.locator("#query").fill("river")
    page.get_by_text("an internal ⟨U+202E⟩error").wait_for()


def test_colours_follow_the_system_until_a_person_chooses(open_page: Open) -> None:
    def wait_for_ground(page: Any, *, dark: bool) -> None:
        page.wait_for_function(
            "dark => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(part => part < 128 === dark)",
            arg=dark,
        )

    page = open_page(color_scheme="dark")
    wait_for_ground(page, dark=True)
    page.emulate_media(color_scheme="light")
    wait_for_ground(page, dark=False)
    page.get_by_role("button", name="Dark colours").click()
    wait_for_ground(page, dark=True)
    page.reload()
    page.get_by_role("button", name="Light colours").wait_for()
    wait_for_ground(page, dark=True)


def test_narrow_screens(open_page: Open) -> None:
    page = open_page(viewport={"width": 360, "height": 740})
    for name, view in VIEWS.items():
        page.goto(page.url.split("#")[0] + view)
        page.locator("#main:not([aria-busy])").wait_for()
        if name in ("answers", "reasons", "vectors"):
            wait_for_answers(page)
        if name == "reasons":
            page.locator("#list li:first-child #reasons .class-head").wait_for()  # Under its class.
        if name == "answers":
            page.get_by_role("button", name="Settings").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name


def test_text_from_right_to_left(open_page: Open) -> None:
    page = open_page()
    page.locator("#query").fill("نص عربي the falcon")
    wait_for_answers(page, "صقر الصحراء")
    assert page.evaluate("getComputedStyle(document.querySelector('#query')).direction") == "rtl"
    page.locator(".answer").first.click()
    page.locator(".passage").wait_for()
    assert page.evaluate("getComputedStyle(document.querySelector('.passage')).direction") == "rtl"
    # Positions of words count characters, of which some are two units of JavaScript's strings.
    page.locator("#query").fill("🦉🦉 the falcon")
    page.locator(".passage", has_text="🦉🦉 the falcon").wait_for()
    assert page.locator(".passage mark.for").first.text_content() == "falcon"


def test_names_that_try_to_do_harm_are_text(open_page: Open) -> None:
    page = open_page(f"#/words/search?text={QUERY} violin&k=10&class=c-castle")
    page.get_by_role("heading", name="⟨U+202E⟩elbisrever⟨U+202C⟩ castle").wait_for()
    shown = names(page)
    assert {"<script>alert(1)</script>", "⟨U+202E⟩elbisrever⟨U+202C⟩ castle", "violin ␛[31mred"} <= set(shown)
    everything = page.evaluate("document.body.textContent")
    assert not re.search("[\u202a-\u202e\x1b]", everything)
    assert page.locator("main script").count() == 0


def test_the_model(open_page: Open) -> None:
    page = open_page("#/words/about")
    page.get_by_role("heading", name="A card").wait_for()
    card = page.locator(".markdown")
    assert "<img src=x onerror=alert(2)>" in card.text_content()
    assert "[bad](javascript:alert(3))" in card.text_content()
    assert [link.get_attribute("href") for link in card.locator("a").all()] == ["https://example.org/"]
    assert card.locator("td").all_text_contents() == ["1", "2"]
    assert page.locator(".tiles div", has_text="classes").text_content() == "classes12"
    assert page.locator(".facts", has_text="votes of similar training points").is_visible()
    page.locator("figure img").wait_for()
    assert page.evaluate("document.querySelector('figure img').naturalWidth") == 200


def test_vectors_that_are_pasted(open_page: Open) -> None:
    page = open_page("#/sparse/search")
    page.get_by_text("This model takes sparse vectors").wait_for()
    page.locator("#query").fill("1:2 4:1")
    wait_for_answers(page)
    pasted = names(page)
    page.locator("#query").fill('{"indices": [4, 1], "values": [1, 2]}')
    page.wait_for_timeout(400)
    assert names(page) == pasted
    page.locator(".answer").first.click()
    page.locator("#reasons").get_by_text("feature 4").wait_for()
    page.locator("#query").fill("1:2 4")
    page.get_by_text("Found “4”; wanted index:value").wait_for()
    page.locator("#query").fill("1:2 999:1")
    page.get_by_text("feature 999").wait_for()


VECTORS = np.array([[0.5, 0, -1.25], [0, 3, 0]], "f4")


def numpy_file(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


FILES = {
    "rows.npy": numpy_file(VECTORS),
    "columns.npy": numpy_file(np.asfortranarray(VECTORS.astype(">f8"))),
    "titles.csv": b"a,b,c\r\n0.5,0,-1.25\r\n0,3,0\r\n",
    "numbers.tsv": b"0.5\t0\t-1.25\n0\t3\t0\n",
    "one.svm": b"2,5 1:0.5 3:-1.25 # first\n1 2:3\n",
    "zero.svm": b"2,5 0:0.5 2:-1.25\n 1:3\n",
    "header.txt": b"2 3 9\n2,5 0:0.5 2:-1.25\n 1:3\n",
    "lines.jsonl": b'{"indices": [0, 2], "values": [0.5, -1.25]}\n\n[0, 3, 0]\n',
}
BAD_FILES = {
    "bad.csv": (b"1,2\n3,x\n", "Line 2: Found “x”; wanted a number."),
    "bad.npy": (b"nothing", "Found no NumPy array; wanted one."),
    "cut.npy": (numpy_file(VECTORS)[:-4], "The file is cut off."),
    "bad.svm": (b"1 3:x\n", "Line 1: Found “x”; wanted a number after 3:."),
    "picture.png": (b"", "wanted a file that ends in"),
    "empty.csv": (b"", "Found no rows; wanted at least one."),
}


def choose_file(page: Any, place: str, name: str, content: bytes) -> None:
    file = {"name": name, "mimeType": "application/octet-stream", "buffer": content}
    page.set_input_files(f"#{place}-input", file)


def test_files_of_vectors(open_page: Open) -> None:
    page = open_page("#/sparse/search")
    for name, content in FILES.items():
        choose_file(page, "query-file", name, content)
        page.get_by_text(f"{name}: 2 rows").wait_for()
        assert page.locator("#query").input_value() == "0:0.5 2:-1.25", name
        page.get_by_role("button", name="Next row").click()
        assert page.locator("#query").input_value() == "1:3", name
        page.get_by_role("button", name="Remove file").click()
    wait_for_answers(page)


def test_files_that_cannot_be_read(open_page: Open) -> None:
    page = open_page("#/sparse/search")
    for name, (content, message) in BAD_FILES.items():
        choose_file(page, "query-file", name, content)
        page.get_by_text(f"{name}: {message}").wait_for()


def test_a_file_of_dense_vectors_among_many_queries(open_page: Open) -> None:
    page = open_page("#/dense/many?k=1")
    vectors = np.random.default_rng(5).normal(size=(70, 9)).astype("f4")
    choose_file(page, "lines-file", "vectors.npy", numpy_file(vectors))
    page.get_by_role("button", name="Predict").click()
    wait_for_progress(page, "70 of 70 queries")
    rows = rows_of_file(page)
    assert len(rows) == 70
    # Each number has digits enough for its 32 bits. A first negative number is no formula either.
    shown = np.array([row["query"].lstrip("'").split() for row in rows]).astype("f4")
    assert np.array_equal(shown, vectors)


def test_a_service_that_asks_for_a_key(open_page: Open, words_model: Path) -> None:
    with Service(f"words={words_model}", keys=KEY) as service:
        page = open_page("#/words/about", at=address_of(service))
        page.get_by_text("This service asks for a key.").wait_for()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_text("answers only with a key").wait_for()
        page.get_by_role("button", name="Try again").click()
        page.get_by_label("Key", exact=True).fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_label("Key", exact=True).fill(KEY)  # The question comes again.
        page.get_by_role("button", name="Continue").click()
        page.locator("figure img").wait_for()  # Pictures need the key, too.
        page.reload()
        page.get_by_role("heading", name="A card").wait_for()
        assert KEY not in page.url


def test_keys_are_letters_digits_and_signs(open_page: Open, words_model: Path) -> None:
    """No others can be sent, so no others are taken."""
    with Service(f"words={words_model}", keys=KEY) as service:
        page = open_page("#/words/about", at=address_of(service))
        field = page.get_by_label("Key", exact=True)
        field.fill(f"{KEY}\u200b")
        page.get_by_role("button", name="Continue").click()
        assert field.is_visible()
        field.fill(f" {KEY} ")
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("heading", name="A card").wait_for()


def test_a_browser_that_keeps_nothing(open_page: Open) -> None:
    page = open_page()
    for kind in ("localStorage", "sessionStorage"):
        page.add_init_script(f"Object.defineProperty(window, '{kind}', {{ get() {{ throw new Error('denied') }} }})")
    page.goto(page.url.split("#")[0] + f"#/words/search?text={QUERY}")
    page.reload()
    wait_for_answers(page)
    before = page.evaluate("document.documentElement.dataset.theme")
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") != before


def test_the_focus_stays_where_controls_change(open_page: Open) -> None:
    def focused() -> str:
        return str(page.evaluate("document.activeElement.closest('[id]').id"))

    page = open_page("#/sparse/search")
    page.locator("#query-file-input").focus()
    choose_file(page, "query-file", "one.svm", FILES["one.svm"])
    page.get_by_role("button", name="Remove file").wait_for()
    assert focused() == "query-file"
    page.get_by_role("button", name="Remove file").press("Enter")
    page.locator("#query-file-input").wait_for(state="attached")
    assert focused() == "query-file-input"
    # Reasons that cannot be had can be closed.
    page = open_page(f"#/words/search?text={QUERY}&class=c-river")
    page.route("**/class?*", lambda route: route.fulfill(status=404, body="{}"))
    page.reload()
    page.locator("#reasons").get_by_role("alert").wait_for()
    page.locator("#reasons").get_by_role("button", name="Close reasons").click()
    page.locator("#reasons").get_by_role("alert").wait_for(state="detached")


def test_an_answer_that_took_too_long_is_not_asked_for_again(open_page: Open) -> None:
    """The service says no time to try again."""
    page = open_page()
    body = json.dumps({"error": {"status": 503, "message": "no answer within 30 seconds", "request_id": "1"}})
    page.route("**/predict", lambda route: route.fulfill(status=503, body=body))
    page.locator("#query").fill("river")
    page.get_by_text("no answer within 30 seconds").wait_for()
    assert page.locator("#trouble").is_hidden()


def test_a_model_that_is_still_being_loaded(open_page: Open) -> None:
    page = open_page()
    unready = {"models": [{"name": "words", "ready": False, "problem": None}]}
    page.route("**/v1/models", lambda route: route.fulfill(body=json.dumps(unready)))
    page.reload()
    page.get_by_text("words is being loaded").wait_for()
    page.unroute("**/v1/models")
    page.get_by_text("Answers appear here").wait_for()


@pytest.mark.skipif(not AXE.exists(), reason="no axe-core; .ci/browser installs it")
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_every_view_is_accessible(open_page: Open, colours: str) -> None:
    page = open_page(color_scheme=colours, reduced_motion="reduce")
    page.evaluate(AXE.read_text())
    for name, view in VIEWS.items():
        page.evaluate("hash => { location.hash = hash }", view)
        page.locator("#main:not([aria-busy])").wait_for()
        if name in ("answers", "reasons", "vectors"):
            wait_for_answers(page)
        if name == "reasons":
            page.locator(".class-head").wait_for()
        if name == "many":
            page.locator("#lines").fill(f"{QUERY}\nxyzzy")
            page.get_by_role("button", name="Predict").click()
            wait_for_progress(page, "2 of 2 queries")
        check_with_axe(page, name)
    page.get_by_role("button", name="Keyboard").click()
    check_with_axe(page, "dialog")
    page.keyboard.press("Escape")
    page.context.set_offline(True)
    page.evaluate("hash => { location.hash = hash }", "#/words/search?text=lantern")
    page.get_by_text("The service does not answer.").wait_for()
    check_with_axe(page, "trouble")


def check_with_axe(page: Any, view: str) -> None:
    found = page.evaluate("axe.run()")["violations"]
    serious = [rule for rule in found if rule["impact"] in ("serious", "critical")]
    nodes = [(rule["id"], node["html"], node["failureSummary"]) for rule in serious for node in rule["nodes"]]
    assert not nodes, f"{view}: {nodes}"
