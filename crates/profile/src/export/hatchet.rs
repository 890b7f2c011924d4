//! Hatchet: its JSON and its literals, with a tree for each rank. The metrics are `time`
//! (exclusive) and `time (inc)` in nanoseconds, and `count`.

use serde_json::{Value, json};

use super::files::ExportFiles;
use crate::paths::{LocationKind, Node, trees};
use crate::run::Run;

/// The input of `GraphFrame.from_literal`.
pub(super) fn literal(run: &Run) -> ExportFiles {
    let trees: Vec<Value> = trees(run).iter().map(node).collect();
    super::files::json("profile.json", &Value::from(trees))
}

fn node(node: &Node) -> Value {
    json!({
        "frame": frame(node),
        "metrics": metrics(node),
        "children": node.children.iter().map(self::node).collect::<Vec<_>>(),
    })
}

fn frame(node: &Node) -> Value {
    let location = &node.location;
    let mut frame = json!({ "name": location.shown(), "type": location.kind.name() });
    let rest = [
        ("file", location.file.clone().map(Value::from)),
        ("line", location.line.map(Value::from)),
        ("module", location.module.clone().map(Value::from)),
    ];
    for (key, value) in rest {
        if let Some(value) = value {
            frame[key] = value;
        }
    }
    frame
}

fn metrics(node: &Node) -> Value {
    json!({
        "time": node.exclusive,
        "time (inc)": node.inclusive,
        "count": node.count,
    })
}

/// The input of `GraphFrame.from_json`.
pub(super) fn json(run: &Run) -> ExportFiles {
    let mut out = FlatNode::default();
    for tree in trees(run) {
        out.add(&tree, None);
    }
    let value = json!({
        "graph": [out.graph],
        "dataframe": out.rows,
        "dataframe_indices": ["node"],
        "exclusive_metrics": ["time", "count"],
        "inclusive_metrics": ["time (inc)"],
    });
    super::files::json("profile.json", &value)
}

#[derive(Default)]
struct FlatNode {
    graph: serde_json::Map<String, Value>,
    rows: Vec<Value>,
}

impl FlatNode {
    /// Adds a node; returns its number.
    fn add(&mut self, node: &Node, rank: Option<&str>) -> usize {
        let number = self.rows.len();
        let rank = match node.location.kind {
            LocationKind::Rank => node.location.name(),
            _ => rank.unwrap_or_default(),
        };
        let mut row = metrics(node);
        row["node"] = number.into();
        row["name"] = node.location.shown().into();
        row["rank"] = rank.into();
        self.rows.push(row);
        let children = node.children.iter();
        let children: Vec<usize> = children.map(|c| self.add(c, Some(rank))).collect();
        let entry = json!({ "data": frame(node), "children": children });
        self.graph.insert(number.to_string(), entry);
        number
    }
}
