//! Type variables. A value is a number, a string or a statistic. There is no subtyping, so
//! inference is unification: each constraint says that two values have the same type, or that one
//! has a given type. Each decision remembers its location in the script.

use spile_cast::Cast;
use spile_ir::intrinsics::ValueKind;
use spile_syntax::ast::Span;

/// A type variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TyVar(u32);

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Base {
    /// 64-bit number.
    Long,
    /// String.
    Str,
    /// Statistic.
    Stats,
}

impl From<ValueKind> for Base {
    fn from(kind: ValueKind) -> Base {
        match kind {
            ValueKind::Long => Base::Long,
            ValueKind::Str => Base::Str,
        }
    }
}

impl Base {
    /// The type's name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Base::Long => "a number",
            Base::Str => "a string",
            Base::Stats => "a statistic",
        }
    }
}

/// Two decisions that contradict each other: the newer one and the older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    /// The type required at the newer location.
    pub here: Base,
    /// The location that decided `here`, if it is another one.
    pub here_at: Span,
    /// The type decided before.
    pub before: Base,
    /// The location that decided `before`.
    pub before_at: Span,
}

#[derive(Debug, Clone, Copy)]
enum TyNode {
    Link(TyVar),
    Root(Option<(Base, Span)>, bool),
}

/// All type variables of a script.
#[derive(Debug, Default)]
pub struct Types {
    nodes: Vec<TyNode>,
}

impl Types {
    /// A new variable of unknown type.
    pub fn fresh(&mut self) -> TyVar {
        self.nodes.push(TyNode::Root(None, false));
        TyVar(self.nodes.len().fit::<u32>() - 1)
    }

    /// A new variable of a known type.
    pub fn fresh_of(&mut self, base: Base, span: Span) -> TyVar {
        self.nodes.push(TyNode::Root(Some((base, span)), false));
        TyVar(self.nodes.len().fit::<u32>() - 1)
    }

    fn root(&self, mut v: TyVar) -> TyVar {
        while let TyNode::Link(next) = self.nodes[v.0 as usize] {
            v = next;
        }
        v
    }

    fn find(&mut self, v: TyVar) -> TyVar {
        let root = self.root(v);
        let mut node = v;
        while let TyNode::Link(next) = self.nodes[node.0 as usize] {
            self.nodes[node.0 as usize] = TyNode::Link(root);
            node = next;
        }
        root
    }

    fn state(&self, root: TyVar) -> (Option<(Base, Span)>, bool) {
        match self.nodes[root.0 as usize] {
            TyNode::Root(d, poisoned) => (d, poisoned),
            TyNode::Link(_) => (None, false),
        }
    }

    /// The type, once it is decided.
    pub fn get(&self, v: TyVar) -> Option<Base> {
        self.state(self.root(v)).0.map(|d| d.0)
    }

    /// Decides that `v` is `base`, at `span`. A variable reports only its first conflict.
    pub fn set(&mut self, v: TyVar, base: Base, span: Span) -> Result<(), Conflict> {
        let r = self.find(v);
        let (decided, poisoned) = self.state(r);
        match decided {
            None => {
                self.nodes[r.0 as usize] = TyNode::Root(Some((base, span)), poisoned);
                Ok(())
            }
            Some((b, _)) if b == base || poisoned => Ok(()),
            Some((before, before_at)) => {
                self.nodes[r.0 as usize] = TyNode::Root(decided, true);
                Err(Conflict {
                    here: base,
                    here_at: span,
                    before,
                    before_at,
                })
            }
        }
    }

    /// Decides that `a` and `b` have the same type; `a` is the newer one in a conflict.
    pub fn unify(&mut self, a: TyVar, b: TyVar) -> Result<(), Conflict> {
        let (ra, rb) = (self.find(a), self.find(b));
        if ra == rb {
            return Ok(());
        }
        let ((da, pa), (db, pb)) = (self.state(ra), self.state(rb));
        if let (Some((here, here_at)), Some((before, before_at))) = (da, db)
            && here != before
        {
            if pa || pb {
                return Ok(());
            }
            self.nodes[ra.0 as usize] = TyNode::Root(da, true);
            self.nodes[rb.0 as usize] = TyNode::Root(db, true);
            return Err(Conflict {
                here,
                here_at,
                before,
                before_at,
            });
        }
        self.nodes[rb.0 as usize] = TyNode::Root(db.or(da), pa || pb);
        self.nodes[ra.0 as usize] = TyNode::Link(rb);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_flow_both_ways_and_conflict_once() {
        let at = |n| Span {
            start: n,
            end: n + 1,
            ..Span::default()
        };
        let mut t = Types::default();
        let (a, b, c) = (t.fresh(), t.fresh(), t.fresh());
        t.unify(a, b).unwrap();
        t.unify(c, a).unwrap();
        t.set(c, Base::Str, at(1)).unwrap();
        assert_eq!(t.get(b), Some(Base::Str));
        let e = t.set(a, Base::Long, at(2)).unwrap_err();
        assert_eq!(
            (e.here, e.before, e.before_at),
            (Base::Long, Base::Str, at(1))
        );
        assert!(t.set(b, Base::Long, at(3)).is_ok());
    }
}
