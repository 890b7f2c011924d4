//! The types of a script's expressions, as far as its text shows them: enough to replace one
//! expression by another. Expressions of unknown type are not changed.

use std::collections::HashMap;

use spile_syntax::ast::*;

use super::walk;

/// A type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ty {
    Long,
    Str,
}

/// The parameter and result types of a function.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signature {
    pub params: Vec<Option<Ty>>,
    pub ret: Option<Ty>,
}

/// The types of a script's names, as far as known.
#[derive(Debug, Clone, Default)]
pub(super) struct Types {
    /// For globals: the types of their keys, and of their values except statistics.
    pub globals: HashMap<Name, (Vec<Option<Ty>>, Option<Ty>)>,
    /// Globals that are statistics.
    pub statistics: Vec<Name>,
    locals: HashMap<(usize, Name), Ty>,
    functions: HashMap<Name, Signature>,
}

fn ty(name: Option<TypeName>) -> Option<Ty> {
    name.map(|t| match t {
        TypeName::Long => Ty::Long,
        TypeName::String => Ty::Str,
    })
}

/// The signatures of a file's functions.
pub(super) fn signatures(file: &File) -> impl Iterator<Item = (Name, Signature)> {
    file.items.iter().filter_map(|item| match item {
        Item::Function(f) => {
            let params = f.params.iter().map(|(_, t)| ty(*t)).collect();
            let ret = ty(f.ret);
            Some((f.name.name.clone(), Signature { params, ret }))
        }
        _ => None,
    })
}

impl Types {
    /// Of a script, which may call the library's functions.
    pub(crate) fn new(file: &File, library: &HashMap<Name, Signature>) -> Types {
        let mut types = Types {
            functions: library.clone(),
            ..Types::default()
        };
        types.functions.extend(signatures(file));
        for item in &file.items {
            match item {
                Item::Global(g) => {
                    for var in &g.vars {
                        let held = var.init.as_ref().map(|l| match l {
                            Literal::Num(_) => Ty::Long,
                            Literal::Str(_) => Ty::Str,
                        });
                        let name = var.name.name.clone();
                        types.globals.insert(name, (Vec::new(), held));
                    }
                }
                _ => continue,
            }
        }
        for (unit, item) in file.items.iter().enumerate() {
            if let Item::Function(f) = item {
                for (param, t) in &f.params {
                    if let Some(t) = ty(*t) {
                        types.locals.insert((unit, param.name.clone()), t);
                    }
                }
            }
        }
        let mut copy = file.clone();
        // What one pass learns, the next one uses.
        for _ in 0..3 {
            walk::exprs(&mut copy, &mut |e, _, unit| {
                types.learn(e, unit);
                false
            });
            let globals = types.globals.clone();
            walk::blocks(&mut copy, &mut |b, unit, _| {
                b.stmts.iter().for_each(|s| types.bind(s, unit, &globals));
                false
            });
        }
        types
    }

    /// The type of a value.
    pub(super) fn of_expr(&self, e: &Expr, unit: usize) -> Option<Ty> {
        use ExprKind::*;
        match &e.kind {
            Num(_) | Unary(..) | In { .. } | IncDec { .. } | Match { .. } | Stat { .. } => {
                Some(Ty::Long)
            }
            Str(_) => Some(Ty::Str),
            Var(name) => match self.globals.get(name) {
                Some((_, held)) => *held,
                None => self.locals.get(&(unit, name.clone())).copied(),
            },
            Index { base, .. } => match &base.kind {
                Var(name) => self.globals.get(name)?.1,
                Hist { .. } => Some(Ty::Long),
                _ => None,
            },
            Call { name, .. } => self.functions.get(&name.name)?.ret,
            Binary(BinOp::Concat, ..) => Some(Ty::Str),
            Binary(..) => Some(Ty::Long),
            Ternary(_, a, b) => self.of_expr(a, unit).or_else(|| self.of_expr(b, unit)),
            Assign { op, rhs, .. } => match op {
                Some(BinOp::Concat) => Some(Ty::Str),
                Some(_) => Some(Ty::Long),
                None => self.of_expr(rhs, unit),
            },
            Print { op, .. } if op.to_string => Some(Ty::Str),
            Target { pretty, name, .. } => match pretty {
                Pretty::None if !name.starts_with("$$") => Some(Ty::Long),
                Pretty::None => Some(Ty::Str),
                _ => Some(Ty::Str),
            },
            _ => None,
        }
    }

    /// The type that an argument of a function has to have.
    pub(super) fn of_param(&self, name: &Name, n: usize) -> Option<Ty> {
        *self.functions.get(name)?.params.get(n)?
    }

    fn set(&mut self, location: &Expr, ty: Option<Ty>, unit: usize) {
        let Some(ty) = ty else { return };
        match &location.kind {
            ExprKind::Var(name) => match self.globals.get_mut(name) {
                Some((_, held)) => *held = held.or(Some(ty)),
                None => _ = self.locals.entry((unit, name.clone())).or_insert(ty),
            },
            ExprKind::Index { base, .. } => self.set(base, Some(ty), unit),
            _ => {}
        }
    }

    fn keys(&mut self, array: &Name, keys: &[Key], unit: usize) {
        let types: Vec<Option<Ty>> = keys
            .iter()
            .map(|k| match k {
                Key::Expr(e) => self.of_expr(e, unit),
                Key::Any(_) => None,
            })
            .collect();
        if let Some((known, _)) = self.globals.get_mut(array) {
            known.resize(types.len(), None);
            for (known, ty) in known.iter_mut().zip(types) {
                *known = known.or(ty);
            }
        }
    }

    /// Learns types of names from an expression.
    fn learn(&mut self, e: &Expr, unit: usize) {
        use ExprKind::*;
        match &e.kind {
            Assign { op, lhs, rhs } => {
                let ty = match op {
                    Some(BinOp::Concat) => Some(Ty::Str),
                    Some(_) => Some(Ty::Long),
                    None => self.of_expr(rhs, unit),
                };
                self.set(lhs, ty, unit);
                self.learn(lhs, unit);
            }
            IncDec { target, .. } => {
                self.set(target, Some(Ty::Long), unit);
                self.learn(target, unit);
            }
            StatAdd { lhs, .. } => {
                let name = match &lhs.kind {
                    Var(name) => Some(name),
                    Index { base, .. } => match &base.kind {
                        Var(name) => Some(name),
                        _ => None,
                    },
                    _ => None,
                };
                if let Some(name) = name.filter(|n| !self.statistics.contains(n)) {
                    self.statistics.push(name.clone());
                }
                self.learn(lhs, unit);
            }
            Stat { arg, .. } | Hist { arg, .. } => self.learn(arg, unit),
            Index { base, keys } => {
                if let Var(name) = &base.kind {
                    self.keys(name, keys, unit);
                }
            }
            In { keys, array } => self.keys(&array.name, keys, unit),
            Binary(op, a, b) => {
                let ty = match op {
                    BinOp::Concat => Some(Ty::Str),
                    BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge => {
                        self.of_expr(a, unit).or_else(|| self.of_expr(b, unit))
                    }
                    _ => Some(Ty::Long),
                };
                self.set(a, ty, unit);
                self.set(b, ty, unit);
            }
            Call { name, args } => {
                for (n, arg) in args.iter().enumerate() {
                    let ty = self.of_param(&name.name, n);
                    self.set(arg, ty, unit);
                }
            }
            _ => {}
        }
    }

    /// The names that a statement sets.
    fn bind(
        &mut self,
        s: &Stmt,
        unit: usize,
        globals: &HashMap<Name, (Vec<Option<Ty>>, Option<Ty>)>,
    ) {
        let mut local = |name: &Ident, ty: Option<Ty>| {
            if let Some(ty) = ty
                && !globals.contains_key(&name.name)
            {
                self.locals.entry((unit, name.name.clone())).or_insert(ty);
            }
        };
        match &s.kind {
            StmtKind::Try { var: Some(var), .. } => local(var, Some(Ty::Str)),
            StmtKind::Foreach(f) => match &f.over {
                ForeachOver::Hist(_) => f.keys.iter().for_each(|k| local(k, Some(Ty::Long))),
                ForeachOver::Array(array) => {
                    if let Some((keys, held)) = globals.get(&array.name) {
                        f.keys.iter().zip(keys).for_each(|(k, t)| local(k, *t));
                        f.value.iter().for_each(|v| local(v, *held));
                    }
                }
            },
            _ => {}
        }
    }
}
