"""The style sheet of a report: one column, dark and light, colours that colour-blind people can tell apart."""

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --bg: #fff; --panel: #f5f6f8; --ink: #1b1f24; --quiet: #5b6570; --rule: #d9dde2;
  --blue: #0072b2; --sky: #56b4e9; --green: #009e73; --orange: #d98200; --red: #d55e00; --yellow: #c9b400;
  --purple: #a2568a; --grey: #98a1aa; }
@media screen and (prefers-color-scheme: dark) {
  :root { --bg: #14171b; --panel: #1d2127; --ink: #e4e7eb; --quiet: #9aa4af; --rule: #343b44;
    --blue: #4aa3df; --sky: #8fd0f5; --green: #2cc197; --orange: #f0a93b; --red: #f0793a; --yellow: #f0e442;
    --purple: #cc79a7; --grey: #79828c; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; background: var(--bg); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; margin: 0 0 .6rem; }
h2 { font-size: 1.2rem; margin: 0 0 .6rem; border-bottom: 1px solid var(--rule); padding-bottom: .3rem; }
h3 { font-size: 1rem; margin: .4rem 0; }
p { margin: .3rem 0; }
section { margin: 1.8rem 0; }
header dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: .5rem 1.5rem; margin: 0; }
dt { color: var(--quiet); font-size: .85rem; }
dd { margin: 0; }
.quiet, figcaption, footer { color: var(--quiet); font-size: .88rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(13rem, 45%), 1fr)); gap: .8rem; }
.tiles > div { background: var(--panel); border-radius: .5rem; padding: .7rem .9rem; }
.big { font-size: 1.5rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(27rem, 100%), 1fr)); gap: 1rem; }
figure { margin: 0; max-width: 46rem; align-self: start; }
figure { background: var(--panel); border-radius: .5rem; padding: .7rem .9rem; }
.scroll { overflow-x: auto; margin: .7rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .32rem .7rem .32rem 0; border-bottom: 1px solid var(--rule); }
th { color: var(--quiet); font-weight: 500; }
td { min-width: 3.5rem; overflow-wrap: break-word; }
td:not(.right) { min-width: 7rem; max-width: 30rem; }
.right { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font-family: ui-monospace, monospace; font-size: .9em; }
.finding { background: var(--panel); border-left: 4px solid var(--red); border-radius: .3rem; padding: .6rem .9rem;
  margin: .6rem 0; }
.finding.closed { border-left-color: var(--grey); }
.fine { border-left-color: var(--green); }
details { margin: .7rem 0; }
summary { cursor: pointer; }
svg.plot { width: 100%; height: auto; display: block; }
svg.shares { width: 100%; min-width: 9rem; height: 1.1rem; display: block; border-radius: .2rem; }
svg text { fill: var(--quiet); font: 11px system-ui, sans-serif; }
svg .levelname { fill: var(--ink); }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.grid { stroke: var(--rule); stroke-width: 1; }
.level { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 2 3; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.guess { stroke-dasharray: 6 4; }
.line.blue { stroke: var(--blue); } .line.orange { stroke: var(--orange); }
.bar.blue { fill: var(--blue); } .bar.sky { fill: var(--sky); } .bar.green { fill: var(--green); }
.bar.orange { fill: var(--orange); } .bar.red { fill: var(--red); } .bar.yellow { fill: var(--yellow); }
.bar.purple { fill: var(--purple); } .bar.grey { fill: var(--grey); }
.key { border-left: .7rem solid var(--grey); padding-left: .45rem; white-space: nowrap; }
.key.blue { border-color: var(--blue); } .key.sky { border-color: var(--sky); }
.key.green { border-color: var(--green); } .key.red { border-color: var(--red); }
.key.yellow { border-color: var(--yellow); } .key.purple { border-color: var(--purple); }
@media print {
  :root { font-size: 10px; }
  body { max-width: none; padding: 0; font-size: 1rem; }
  figure, tr, .finding { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .scroll { overflow: visible; }
  td, td:not(.right) { min-width: 0; padding-right: .4rem; }
  svg.shares { min-width: 4rem; }
}
"""
