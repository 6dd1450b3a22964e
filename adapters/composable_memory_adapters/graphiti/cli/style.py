"""The style sheet of the page with the graph: light or dark, as the reader's system is."""

__all__ = ["STYLE"]

STYLE = """
:root{color-scheme:light dark;--ground:#fbfaf7;--card:#fff;--ink:#23262d;--soft:#6b7280;--line:#e5e2da;
--now:#8a94a6;--once:#c9c5bb;--k0:#7b8494;--k1:#3b6fd4;--k2:#c2571a;--k3:#23875a;--k4:#9a45b8;--k5:#b8355c;
--k6:#0f8390;--k7:#8a6d0b;--k8:#5b56c9}
@media (prefers-color-scheme:dark){:root{--ground:#14161a;--card:#1b1e24;--ink:#e7e5df;--soft:#9aa1ad;
--line:#2c3038;--now:#717b8d;--once:#464b55;--k0:#8d96a6;--k1:#7fa8f5;--k2:#f0955c;--k3:#5fc795;--k4:#cf8be6;
--k5:#f0809f;--k6:#54c3cf;--k7:#d6b64c;--k8:#a29dfa}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1180px;padding:40px 24px 64px;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
h1{margin:0;font-size:28px;line-height:1.2;font-weight:650;letter-spacing:-.01em;overflow-wrap:anywhere}
header p{margin:6px 0 14px;color:var(--soft)}
.legend{display:flex;flex-wrap:wrap;gap:6px 18px;margin:0;padding:0;list-style:none;font-size:13px;
color:var(--soft)}
.legend li::before{content:"";display:inline-block;margin-right:7px;vertical-align:middle}
.legend .now::before,.legend .once::before{width:22px;border-top:2px solid var(--now)}
.legend .once::before{border-top:2px dashed var(--once)}
.legend .kind::before{width:10px;height:10px;border-radius:50%;background:var(--own)}
.k0{--own:var(--k0)}.k1{--own:var(--k1)}.k2{--own:var(--k2)}.k3{--own:var(--k3)}.k4{--own:var(--k4)}
.k5{--own:var(--k5)}.k6{--own:var(--k6)}.k7{--own:var(--k7)}.k8{--own:var(--k8)}
.arrows{position:absolute;width:0;height:0}
#now path{fill:var(--now)}#once path{fill:var(--once)}
figure{margin:24px 0;padding:8px;background:var(--card);border:1px solid var(--line);border-radius:14px;
overflow:auto;text-align:center}
.figure{width:100%;height:auto;display:inline-block}
.figure text{font-size:13px;fill:var(--ink);paint-order:stroke;stroke:var(--card);stroke-width:4px;
stroke-linejoin:round}
.entity circle{fill:var(--own);stroke:var(--card);stroke-width:2px}
.entity text{font-weight:550}
.centre rect{fill:var(--own)}
.centre text{fill:var(--card);stroke:none;font-size:15px;font-weight:650}
.tie path{fill:none;stroke:var(--now);stroke-width:1.4px}
.tie.once path{stroke:var(--once);stroke-dasharray:5 4}
.tie text{font-size:11px;fill:var(--ink)}
.tie .when{fill:var(--soft)}
.tie.once text,.tie.once .when{fill:var(--soft);opacity:.8}
.tie.chord path{opacity:.6}
.tie:hover path{stroke:var(--ink);stroke-width:2px}
table{width:100%;border-collapse:collapse;font-size:14px;table-layout:fixed}
th{padding:8px 14px 8px 0;text-align:left;font-weight:600;font-size:12px;color:var(--soft);
border-bottom:1px solid var(--line)}
td{padding:9px 14px 9px 0;vertical-align:top;border-bottom:1px solid var(--line);overflow-wrap:anywhere}
th:nth-child(1){width:18%}th:nth-child(2){width:34%}th:nth-child(3){width:27%}
td:first-child{font-variant-numeric:tabular-nums}
td:nth-child(n+3){font-size:13px;color:var(--soft)}
tr.once td{color:var(--soft)}
tr.once td:nth-child(2){text-decoration:line-through;text-decoration-color:var(--once)}
.none{color:var(--soft)}
"""
"""CSS without a single address in it."""
