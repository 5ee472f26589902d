"""The console in a real browser, before a real stack: what an operator sees, hears and may do."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvairlock.drills.canaries import Canaries
from kvairlock.drills.client import Client
from kvairlock.drills.demo.run import CASES, settings
from kvairlock.drills.demo.scenarios import SCENARIOS, Bench
from kvairlock.drills.records import Records
from kvairlock.drills.stack import Keys, Running, make_keys, running
from tests.e2e.served import OPERATOR, Served, serving

from .frozen import freezing
from .pages import Tab, tab

SEED = 20261201
LOAD_MS_MAX = 1_000
SETTINGS = """
[commitment]
context_tokens = 1024

[[prefill]]
name = "prefill-0"
pages = 128
prefix_share = 0

[[decode]]
name = "decode-0"
pages = 256

[limits]
beat_ms = 50
"""

COUNTS = "() => [...document.querySelectorAll('#stages tbody tr')].map(r => r.cells[2].innerText)"
PIXELS = "canvas => canvas.toDataURL()"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("console")
    with serving(folder, SETTINGS, {"acme-secret-name": "private"}) as served:
        yield served


@pytest.fixture
def entered(opened: Tab, stack: Served) -> Tab:
    """The console, open, with both maps drawn."""
    opened.enter(stack.url, stack.keys.of[OPERATOR])
    opened.until("() => document.querySelectorAll('canvas[data-whole-ms]').length === 2")
    return opened


# Loading


def test_the_page_is_there_within_a_second(browser: Any, stack: Served) -> None:
    took = []
    for _ in range(5):
        with tab(browser) as fresh:
            fresh.go(stack.url)
            fresh.page.wait_for_load_state("load")
            took.append(
                fresh.page.evaluate(
                    "() => performance.getEntriesByType('navigation')[0].loadEventEnd"
                )
            )
    print(f"loaded in {sorted(map(round, took))} ms")
    assert statistics.median(took) < LOAD_MS_MAX


def test_figures_are_there_within_a_second_of_the_key(opened: Tab, stack: Served) -> None:
    opened.go(stack.url)
    opened.page.fill("#key", stack.keys.of[OPERATOR])
    took_ms = opened.page.evaluate(
        """() => new Promise(done => {
          const began = performance.now();
          new MutationObserver((_, self) => {
            if (!document.querySelector('#tiles dd')) return;
            self.disconnect();
            done(performance.now() - began);
          }).observe(document.body, {subtree: true, childList: true});
          document.getElementById('door').requestSubmit();
        })"""
    )
    print(f"figures after {took_ms:.0f} ms")
    assert took_ms < LOAD_MS_MAX


# The key


def test_a_wrong_key_opens_nothing_and_says_so(opened: Tab, stack: Served) -> None:
    opened.go(stack.url)
    opened.give("kva-AAAAAAAA-notakey")
    opened.until("() => document.getElementById('door-error').innerText !== ''")
    assert opened.text("#door-error") == "this API key is not known"
    assert opened.page.is_hidden("#main")
    assert opened.page.evaluate("() => document.activeElement.id") == "key", "try again at once"
    assert opened.page.evaluate("() => sessionStorage.getItem('kvairlock-console-key')") is None
    opened.said.clear()  # a browser tells of every 401 on its console, whoever handles it


def test_a_tenants_key_opens_nothing(opened: Tab, stack: Served) -> None:
    opened.go(stack.url)
    opened.give(stack.keys.of["acme-secret-name"])
    opened.until("() => document.getElementById('door-error').innerText !== ''")
    assert opened.text("#door-error") == "this needs an operator's API key"
    assert opened.page.is_hidden("#main")
    opened.said.clear()


def test_what_can_be_no_key_is_not_even_sent(opened: Tab, stack: Served) -> None:
    opened.go(stack.url)
    opened.give("no\N{LATIN SMALL LETTER E WITH ACUTE} key")
    opened.until("() => document.getElementById('door-error').innerText !== ''")
    assert not [url for url in opened.asked if url.endswith("/live")]


def test_the_key_stays_in_the_tab_until_it_is_forgotten(entered: Tab, stack: Served) -> None:
    entered.page.reload()
    entered.page.wait_for_selector("#tiles dd")
    assert stack.keys.of[OPERATOR] not in "".join(entered.asked), "never in an address"
    entered.page.click("#forget")
    assert entered.page.is_visible("#door")
    entered.page.reload()
    assert entered.page.is_visible("#door")
    assert entered.page.evaluate("() => sessionStorage.length + localStorage.length") <= 1


# What is shown


def test_pages_change_and_refusals_appear_while_it_is_open(entered: Tab, stack: Served) -> None:
    before = entered.page.evaluate(COUNTS)
    assert before[0] == "256", "all pages of the decode node are free"
    picture = entered.page.eval_on_selector("canvas >> nth=1", PIXELS)
    call = stack.start(stack.canaries.prompt("acme-secret-name", 600), max_tokens=400, stop=None)
    entered.until(
        "() => document.querySelectorAll('#stages tbody tr')[5].cells[2].innerText !== '0'"
    )
    assert entered.page.eval_on_selector("canvas >> nth=1", PIXELS) != picture
    entered.until_row("flow", "confirmed", "0", "1")
    call.leave()
    entered.until("() => document.querySelector('#stages tbody tr').cells[2].innerText === '256'")
    too_long = stack.post(stack.canaries.prompt("acme-secret-name", 3000))
    assert too_long.status_code == 400
    entered.until_row("refusal-table", "context length", "gateway", "client")
    entered.until_row("outcomes", "rejected", "1")


@pytest.fixture(scope="module")
def demo_keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"), ["acme", "bravo"])


def play_incident(stack: Running, keys: Keys) -> threading.Thread:
    """Play the demo's incident beside the browser."""
    records = Records(stack.evidence, keys.pseudonyms)
    bench = Bench(Client(stack, keys), Canaries(SEED), records)
    playing = threading.Thread(target=SCENARIOS["incident"], args=(bench,), daemon=True)
    playing.start()
    return playing


def test_the_incident_is_seen_live_as_a_refusal_with_its_guards(
    opened: Tab, demo_keys: Keys, tmp_path: Path
) -> None:
    (case,) = (case for case in CASES if case.guards == "outcome alone")
    with running(settings(case), demo_keys, tmp_path) as stack:
        opened.enter(stack.url, demo_keys.of["acme"])
        opened.until_row("refusal-table", "nothing was refused")
        playing = play_incident(stack, demo_keys)
        opened.until_row("refusal-table", "peer rejected")
        assert opened.rows("refusal-table")[0][2:] == ["peer", "1"]
        playing.join()


def test_the_incident_is_seen_live_as_uncovered_reads_without_its_guards(
    opened: Tab, demo_keys: Keys, tmp_path: Path
) -> None:
    (case,) = (case for case in CASES if case.guards == "off")
    with running(settings(case), demo_keys, tmp_path) as stack:
        opened.enter(stack.url, demo_keys.of["acme"])
        playing = play_incident(stack, demo_keys)
        opened.until(
            "() => { const rows = [...document.querySelectorAll('#reads tbody tr')];"
            " return rows.length === 2 && rows.every(r => r.cells[6].innerText !== '0'); }"
        )
        assert all(row[2] == "0" for row in opened.rows("reads")), "nothing was verified"
        assert ["prefill-0/decode-0", "decode-0", "range", "disabled"] in [
            row[:4] for row in opened.rows("relaxed")
        ]
        playing.join()


def test_a_lost_node_is_said_and_its_map_goes(opened: Tab, tmp_path: Path) -> None:
    with serving(tmp_path, SETTINGS, {"acme": "none"}) as served:
        opened.enter(served.url, served.keys.of[OPERATOR])
        opened.until("() => document.querySelectorAll('canvas[data-whole-ms]').length === 2")
        served.kill("prefill-0")
        opened.until("() => document.querySelectorAll('.map:not([hidden])').length === 1")
        opened.until("() => document.querySelectorAll('.map:not([hidden])').length === 2")
        opened.until("() => document.querySelector('#news').innerText.includes('prefill-0')")


# When something is wrong


def test_a_connection_that_is_dead_and_open_is_given_up_and_made_again(
    opened: Tab, stack: Served
) -> None:
    with freezing(int(stack.url.rsplit(":", 1)[1])) as proxy:
        opened.page.clock.install()
        opened.enter(proxy.url, stack.keys.of[OPERATOR])
        opened.until("() => document.getElementById('connection').innerText === 'live'")
        proxy.freeze()
        opened.until("() => document.getElementById('connection').innerText.startsWith('silent')")
        opened.page.clock.fast_forward(10_000)
        opened.until("() => document.getElementById('connection').innerText.startsWith('lost')")
        assert opened.text("#connection") == "lost: nothing came for ten seconds"
        opened.until("() => document.getElementById('connection').innerText === 'live'")


def test_a_fault_of_the_page_itself_is_no_lost_gateway(browser: Any, stack: Served) -> None:
    with tab(browser) as broken:
        broken.page.route("**/console/pages.js", faulty)
        broken.enter(stack.url, stack.keys.of[OPERATOR])
        broken.until("() => document.getElementById('connection').innerText.startsWith('lost')")
        assert "this page has a fault" in broken.text("#connection")
        assert "error: planted" in broken.said


def faulty(route: Any) -> None:
    response = route.fetch()
    planted = "apply(map, told, now) { throw new Error('planted');"
    route.fulfill(
        response=response, body=response.text().replace("apply(map, told, now) {", planted)
    )


def test_a_tab_that_is_hidden_for_hours_keeps_no_more_runs_than_pages(entered: Tab) -> None:
    runs = entered.page.evaluate(
        """async () => {
          const { apply, take } = await import('/console/pages.js');
          const base64 = array => btoa(String.fromCharCode(...new Uint8Array(array.buffer)));
          const told = (extent, ...spans) => ({
            extent, pool_pages: 8, watched_ms: 0, spans: base64(new Int32Array(spans)),
            stages: base64(new Int8Array(8)), generations: base64(new BigInt64Array(8)),
            ages_ms: base64(new Uint32Array(8)),
          });
          let map = apply(undefined, told('whole', 0, 8), 0);
          take(map);
          const change = times => {
            while (times--) map = apply(map, told('changes', 1, 1, 5, 1), 0);
          };
          change(4);
          const few = map.runs.length;
          change(1000);
          const kept = map.runs.length;
          return [few, kept, take(map).find(([, count]) => count === 8), take(map)];
        }"""
    )
    few, kept, whole, after = runs
    assert few == 8, "as long as they are not more than pages, they are kept as they came"
    assert kept < 8
    assert (whole, after) == ([0, 8], [])


# For everybody


def test_a_map_can_be_read_by_keyboard(entered: Tab) -> None:
    page = entered.page
    page.focus("canvas >> nth=1")
    page.keyboard.press("End")
    assert page.get_attribute("canvas >> nth=1", "aria-valuenow") == "255"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    text = page.get_attribute("canvas >> nth=1", "aria-valuetext")
    assert text.startswith("page 1: free, generation ")
    assert page.inner_text(".readout >> nth=1").startswith(f"{text}, for ")
    page.keyboard.press("ArrowDown")
    assert int(page.get_attribute("canvas >> nth=1", "aria-valuenow")) > 2, "a row further down"


def test_a_page_that_does_not_change_is_read_out_once(entered: Tab) -> None:
    entered.page.focus("canvas >> nth=1")
    said = entered.page.evaluate(
        """() => new Promise(done => {
          const readout = document.querySelectorAll('.readout')[1];
          let [words, ages] = [0, 0];
          const text = {attributes: true, attributeFilter: ['aria-valuetext', 'aria-valuenow']};
          new MutationObserver(all => { words += all.length; })
            .observe(document.querySelectorAll('canvas')[1], text);
          new MutationObserver(() => { if ((ages += 1) === 3) done(words); })
            .observe(readout, {childList: true, characterData: true, subtree: true});
        })"""
    )
    assert said == 0, "its age went on, and nothing was said"


def test_everything_can_be_reached_by_keyboard_in_order_and_is_seen_to_be(entered: Tab) -> None:
    page, seen = entered.page, ["skip"]
    page.focus(".skip")
    for _ in range(60):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "() => { const e = document.activeElement;"
            " return [e.id || e.className || e.tagName, getComputedStyle(e).outlineStyle]; }"
        )
        if name == "BODY":
            break
        seen.append(name)
        assert outline != "none", f"{name} has the focus and does not show it"
    for wanted in ("skip", "theme", "forget", "CANVAS", "stage"):
        assert wanted in seen, seen
    assert seen.index("theme") < seen.index("CANVAS") < seen.index("stage")


def test_every_part_has_a_name_and_a_role(entered: Tab) -> None:
    wrong = entered.page.evaluate(
        """() => {
          const wrong = [];
          const named = e => e.getAttribute('aria-label') || e.innerText ||
            [e.getAttribute('aria-labelledby')].filter(Boolean)
              .map(id => document.getElementById(id)?.textContent).join('') ||
            e.labels?.[0]?.innerText;
          const parts = 'button, a, input, select, canvas, svg, section, nav';
          for (const e of document.querySelectorAll(parts))
            if (!named(e)) wrong.push(`${e.tagName} ${e.id} has no name`);
          for (const table of document.querySelectorAll('table')) {
            if (!table.caption) wrong.push(`${table.id} has no caption`);
            for (const th of table.querySelectorAll('th'))
              if (!th.scope) wrong.push(`${table.id}: a heading without a scope`);
          }
          const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
          if (new Set(ids).size !== ids.length) wrong.push('an id is used twice');
          const levels = [...document.querySelectorAll('h1, h2, h3')].map(h => +h.tagName[1]);
          if (levels[0] !== 1 || levels.some((l, i) => i && l - levels[i - 1] > 1))
            wrong.push(`headings ${levels}`);
          if (document.querySelectorAll('main').length !== 1) wrong.push('no one main');
          if (!document.documentElement.lang) wrong.push('no language');
          return wrong;
        }"""
    )
    assert wrong == []


CONTRAST = """() => {
  const rgb = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = c => { const s = rgb(c).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * s[0] + 0.7152 * s[1] + 0.0722 * s[2]; };
  const under = e => { for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor;
    if (!/rgba\\(.*, 0\\)/.test(c) && c !== 'transparent') return c; }
    return 'rgb(255, 255, 255)'; };
  const says = e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  const found = [];
  for (const e of document.querySelectorAll('main *, header *')) {
    if (!e.checkVisibility() || !says(e)) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(under(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5)
      found.push(`${e.tagName} ${e.className} ${e.innerText.slice(0, 20)}: ${ratio.toFixed(1)}`);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_themes(entered: Tab, scheme: str) -> None:
    picture = entered.page.eval_on_selector("canvas >> nth=0", PIXELS)
    entered.page.select_option("#theme", scheme)
    surface = entered.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, surface[4:-1].split(","))) < 384) == (scheme == "dark")
    assert entered.page.evaluate(CONTRAST) == []
    if scheme == "dark":
        entered.until(f"p => ({PIXELS})(document.querySelector('canvas')) !== p", picture)


def test_a_theme_of_the_system_is_followed(entered: Tab) -> None:
    picture = entered.page.eval_on_selector("canvas >> nth=0", PIXELS)
    entered.page.emulate_media(color_scheme="dark")
    entered.until(f"p => ({PIXELS})(document.querySelector('canvas')) !== p", picture)


def test_nothing_moves_by_itself_for_who_wants_that(entered: Tab) -> None:
    entered.page.emulate_media(reduced_motion="reduce")
    moving = entered.page.evaluate(
        "() => [...document.querySelectorAll('*')].filter(e => { const s = getComputedStyle(e);"
        " return s.animationName !== 'none' || parseFloat(s.transitionDuration) > 0; }).length"
    )
    assert moving == 0
    behaviour = "() => getComputedStyle(document.documentElement).scrollBehavior"
    assert entered.page.evaluate(behaviour) == "auto"


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_no_width_makes_the_page_scroll_sideways(entered: Tab, width: int) -> None:
    entered.page.set_viewport_size({"width": width, "height": 800})
    entered.until("() => document.documentElement.scrollWidth <= window.innerWidth")


def test_a_stage_can_be_shown_alone(entered: Tab) -> None:
    picture = entered.page.eval_on_selector("canvas >> nth=0", PIXELS)
    button = entered.page.get_by_role("button", name="draining")
    button.press("Enter")
    entered.until(f"p => ({PIXELS})(document.querySelector('canvas')) !== p", picture)
    assert button.get_attribute("aria-pressed") == "true"
    button.press("Enter")
    entered.until(f"p => ({PIXELS})(document.querySelector('canvas')) === p", picture)
    assert button.get_attribute("aria-pressed") == "false"


def test_no_tenant_and_no_request_is_on_the_page(entered: Tab, stack: Served) -> None:
    answered = stack.post(stack.canaries.prompt("acme-secret-name", 300))
    request = answered.headers["x-request-id"]
    entered.until("() => document.querySelectorAll('#outcomes tr').length > 1")
    page = entered.page.content()
    assert "acme-secret-name" not in page
    assert OPERATOR + "-" not in page
    assert request not in page
