//! From the expression to an automaton with marks: begins and ends of groups and other parts, the
//! preference between paths, and the rounds of a repetition that may be empty.

use spile_cast::Cast;

use super::error::Error;
use super::parser::{Ast, ByteSet};

/// Index of a node.
pub(super) type NodeId = u32;
/// Maximum number of nodes; intervals multiply the repeated part.
const MAX_NODES: usize = 4000;
/// Maximum number of repetitions whose body can match the empty string.
const MAX_LOOPS: u8 = 28;

/// A node.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// Consumes a byte.
    Byte(ByteSet, NodeId),
    /// Alternative paths, the preferred ones first.
    Fork(Vec<NodeId>),
    /// A part begins or ends: from here on the path is inside this number of parts.
    Depth(u32, NodeId),
    /// A group's start (even) or end (odd): its number times two.
    Tag(u32, NodeId),
    /// A group begins again; these tags are forgotten.
    Forget(Vec<u32>, NodeId),
    /// A round of a repetition begins that must consume something, or (`first`) leave at once if it
    /// does not.
    Round {
        /// The repetition.
        id: u8,
        /// It is the first round of a repetition that may have none.
        first: bool,
        /// The body.
        next: NodeId,
    },
    /// A round of that kind ends.
    RoundEnd {
        /// The repetition.
        id: u8,
        /// The start of another round.
        again: Option<NodeId>,
        /// The node after the repetition.
        exit: NodeId,
    },
    /// `^`
    Begin(NodeId),
    /// `$`
    End(NodeId),
    /// The accepting node.
    Accept,
}

/// An automaton.
#[derive(Debug)]
pub(super) struct Nfa {
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// The start node.
    pub start: NodeId,
    /// Class of each byte.
    pub classes: [u8; 256],
    /// Number of classes.
    pub class_count: usize,
}

/// Makes the automaton.
///
/// # Errors
/// It would be too large.
pub(super) fn build(ast: &Ast) -> Result<Nfa, Error> {
    let mut b = Builder {
        nodes: vec![Node::Accept],
        loops: 0,
    };
    let start = b.emit(ast, 0, 0)?;
    let (classes, class_count) = classes(&b.nodes);
    Ok(Nfa {
        nodes: b.nodes,
        start,
        classes,
        class_count,
    })
}

/// Groups bytes into classes: bytes that no set distinguishes are in one class.
fn classes(nodes: &[Node]) -> ([u8; 256], usize) {
    let mut class = [0usize; 256];
    let mut count = 1;
    for node in nodes {
        let Node::Byte(set, _) = node else { continue };
        let mut split: Vec<Option<usize>> = vec![None; count];
        let mut has = vec![(false, false); count];
        for b in 0..=255u8 {
            let both = &mut has[class[usize::from(b)]];
            if set.contains(b) {
                both.0 = true;
            } else {
                both.1 = true;
            }
        }
        for b in 0..=255u8 {
            let c = class[usize::from(b)];
            if set.contains(b) && has[c] == (true, true) {
                class[usize::from(b)] = *split[c].get_or_insert_with(|| {
                    count += 1;
                    count - 1
                });
            }
        }
    }
    (class.map(|c| c.fit::<u8>()), count)
}

struct Builder {
    nodes: Vec<Node>,
    loops: u8,
}

type Res = Result<NodeId, Error>;

impl Builder {
    fn add(&mut self, node: Node) -> Res {
        if self.nodes.len() >= MAX_NODES {
            return Err(Error::large("it has too many parts, intervals written out"));
        }
        self.nodes.push(node);
        Ok(self.nodes.len().fit::<NodeId>() - 1)
    }

    /// Nodes for `ast` at depth `depth`, followed by `next`.
    fn emit(&mut self, ast: &Ast, depth: u32, next: NodeId) -> Res {
        match ast {
            Ast::Empty => Ok(next),
            Ast::Set(set) => self.add(Node::Byte(*set, next)),
            Ast::Begin => self.add(Node::Begin(next)),
            Ast::End => self.add(Node::End(next)),
            Ast::Group(n, body) => {
                let close = self.add(Node::Tag(2 * n + 1, next))?;
                let start = self.emit(body, depth, close)?;
                let mut inner = Vec::new();
                body.for_each_group(&mut |g| inner.extend([2 * g, 2 * g + 1]));
                let start = match inner.is_empty() {
                    true => start,
                    false => self.add(Node::Forget(inner, start))?,
                };
                self.add(Node::Tag(2 * n, start))
            }
            Ast::Concat(list) => {
                let mut next = next;
                for part in list.iter().rev() {
                    next = match part {
                        Ast::Empty | Ast::Set(_) | Ast::Begin | Ast::End => {
                            self.emit(part, depth + 1, next)?
                        }
                        _ => {
                            let close = self.add(Node::Depth(depth, next))?;
                            let start = self.emit(part, depth + 1, close)?;
                            self.add(Node::Depth(depth + 1, start))?
                        }
                    };
                }
                Ok(next)
            }
            Ast::Alt(list) => {
                let ways: Result<Vec<NodeId>, Error> =
                    list.iter().map(|a| self.emit(a, depth, next)).collect();
                self.add(Node::Fork(ways?))
            }
            Ast::Repeat { body, min, max } => self.repeat(body, (*min, *max), depth, next),
        }
    }

    /// Required rounds are copied; so are optional ones, unless there is no limit.
    fn repeat(
        &mut self,
        body: &Ast,
        (min, max): (u32, Option<u32>),
        depth: u32,
        next: NodeId,
    ) -> Res {
        let nullable = body.nullable();
        let mut next = match max {
            None => self.star(body, nullable, min == 0, depth, next)?,
            Some(max) => {
                let exit = next;
                let mut more = exit;
                for round in (min..max).rev() {
                    let first = round == 0;
                    let again = (more != exit).then_some(more);
                    more = self.optional(body, nullable, first, depth, again, exit)?;
                }
                more
            }
        };
        for _ in 0..min {
            next = self.round(body, depth, next)?;
        }
        Ok(next)
    }

    /// One round, which is a part of its own.
    fn round(&mut self, body: &Ast, depth: u32, next: NodeId) -> Res {
        if matches!(body, Ast::Set(_)) {
            return self.emit(body, depth + 1, next);
        }
        let close = self.add(Node::Depth(depth, next))?;
        let start = self.emit(body, depth + 1, close)?;
        self.add(Node::Depth(depth + 1, start))
    }

    /// An optional round.
    fn optional(
        &mut self,
        body: &Ast,
        nullable: bool,
        first: bool,
        depth: u32,
        again: Option<NodeId>,
        exit: NodeId,
    ) -> Res {
        let start = if nullable {
            let id = self.new_loop()?;
            let end = self.add(Node::RoundEnd { id, again, exit })?;
            let next = self.round(body, depth, end)?;
            self.add(Node::Round { id, first, next })?
        } else {
            self.round(body, depth, again.unwrap_or(exit))?
        };
        self.add(Node::Fork(vec![start, exit]))
    }

    fn star(&mut self, body: &Ast, nullable: bool, none: bool, depth: u32, exit: NodeId) -> Res {
        if !nullable {
            let head = self.add(Node::Fork(Vec::new()))?;
            let start = self.round(body, depth, head)?;
            self.nodes[head as usize] = Node::Fork(vec![start, exit]);
            return Ok(head);
        }
        let id = self.new_loop()?;
        let end = self.add(Node::Accept)?;
        let body = self.round(body, depth, end)?;
        let later = self.add(Node::Round {
            id,
            first: false,
            next: body,
        })?;
        self.nodes[end as usize] = Node::RoundEnd {
            id,
            again: Some(later),
            exit,
        };
        let start = match none {
            true => self.add(Node::Round {
                id,
                first: true,
                next: body,
            })?,
            false => later,
        };
        self.add(Node::Fork(vec![start, exit]))
    }

    fn new_loop(&mut self) -> Result<u8, Error> {
        if self.loops >= MAX_LOOPS {
            return Err(Error::large("it repeats too many things that can be empty"));
        }
        self.loops += 1;
        Ok(self.loops - 1)
    }
}
