//! The differential flame graph of two sets of runs, as one page for a browser: paths of all threads
//! together, as wide as their time in one set, coloured by their change from the other.

use serde_json::{Value, json};

use super::{escape, filled};
use crate::changes::{Change, ComparedValues, Comparison, Periods, Series, differences};
use crate::model::TimePart;
use crate::paths::{LocationKind, PathLocation, PathSample, threads};
use crate::report;
use crate::run::Run;

/// Columns, and rows of tables, of the text below the graph.
const TEXT: (usize, usize) = (120, 40);
/// Nodes below this part of the whole are left out: they are narrower than a pixel.
const NARROWEST: u64 = 2000;

/// The page of the changes from the runs `a` to the runs `b`.
pub fn html_diff(a: &[Run], b: &[Run]) -> String {
    let comparison = Comparison {
        runs: [a.len(), b.len()],
        least: differences(a, b).least,
    };
    let mut root = ComparedNode::default();
    for (set, runs) in [a, b].into_iter().enumerate() {
        for (index, run) in runs.iter().enumerate() {
            let periods = Periods::new(run);
            for thread in run.profiles.iter().flat_map(threads) {
                for sample in &thread.samples {
                    let part = sample.part.unwrap_or(TimePart::Runnable);
                    let square = periods.square(part, sample.ns);
                    root.add(set, index, sample, square);
                }
            }
        }
    }
    let whole = comparison.change(&root.series);
    let narrowest = whole.a.amount.max(whole.b.amount) / NARROWEST;
    let tree = root.json(
        "all threads",
        "",
        &whole,
        &|series| comparison.change(series),
        narrowest,
    );
    // Within a script element no text may look like its end.
    let data = tree.to_string().replace('<', "\\u003c");
    let command = b.first().and_then(|run| run.profiles.first());
    let title = command.map_or_else(String::new, |p| p.header.command_line());
    let title = escape(&title);
    filled(
        include_bytes!(concat!(env!("OUT_DIR"), "/diff.z")),
        &[
            ("@TITLE@", title.clone()),
            ("@TITLE@", title),
            ("@TEXT@", escape(&report::diff(a, b, TEXT.0, TEXT.1))),
            ("@DATA@", data),
        ],
    )
}

/// A location, with its times in both sets, including those of its descendants.
#[derive(Default)]
struct ComparedNode {
    series: Series,
    /// In the order of names. Lines do not distinguish locations: they differ between programs.
    children: Vec<(PathLocation, ComparedNode)>,
}

impl ComparedNode {
    fn add(&mut self, set: usize, run: usize, sample: &PathSample, square: f64) {
        let values = ComparedValues {
            amount: sample.ns,
            count: sample.count,
        };
        let mut node = self;
        node.series.add(set, run, values, square);
        for at in &sample.path {
            let key = |at: &PathLocation| (at.kind, at.function.clone(), at.module.clone());
            let wanted = key(at);
            let found = node
                .children
                .binary_search_by(|(at, _)| key(at).cmp(&wanted));
            let index = found.unwrap_or_else(|index| {
                node.children
                    .insert(index, (at.clone(), ComparedNode::default()));
                index
            });
            node = &mut node.children[index].1;
            node.series.add(set, run, values, square);
        }
    }

    fn json(
        &self,
        name: &str,
        kind: &str,
        own: &Change,
        change: &impl Fn(&Series) -> Change,
        narrowest: u64,
    ) -> Value {
        let children = self.children.iter().filter_map(|(at, node)| {
            let own = change(&node.series);
            let wide = own.a.amount.max(own.b.amount) > narrowest;
            wide.then(|| {
                let module = at.module.as_deref().map(crate::run::last);
                let name = match (at.kind, module) {
                    (LocationKind::Function, Some(module)) => format!("{} ({module})", at.name()),
                    _ => at.name().to_owned(),
                };
                node.json(&name, at.kind.name(), &own, change, narrowest)
            })
        });
        json!({
            "n": name, "k": kind, "a": own.a.amount, "b": own.b.amount, "e": own.noise, "x": own.changed,
            "ch": children.collect::<Vec<_>>(),
        })
    }
}
