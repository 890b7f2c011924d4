//! Functions of Python programs in the place of the interpreter's C function that executes them.

use std::collections::HashMap;

use spile_profile::model::StackFrame;

use crate::rows::Fields;

/// The C function that executes Python functions. One call of it can execute several that call each other: a run.
const EXECUTES: &str = "_PyEval_EvalFrameDefault";

/// Limit on the depth of a stack, as in `python_stack()` of `tools/profile.stp`.
const MOST: usize = 64;

/// The Python functions of stacks, by the numbers of the stacks.
#[derive(Debug, Default)]
pub(super) struct PythonStacks(HashMap<i64, PythonStack>);

#[derive(Debug, Default)]
struct PythonStack {
    /// The functions, the innermost run first, and in it the innermost function. Runs can be empty.
    runs: Vec<Vec<StackFrame>>,
    /// Number of functions.
    frames: usize,
}

impl PythonStacks {
    /// Adds a function from a row; each stack's come in their order, and again if another thread has the stack too.
    pub(super) fn learn(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let (stack, index, run): (i64, usize, usize) = (f.integer()?, f.integer()?, f.integer()?);
        let function = f.string()?.into_owned();
        let file = f.string()?.into_owned();
        let line = f.integer()?;
        if index >= MOST || run >= MOST {
            return None;
        }
        let stack = self.0.entry(stack).or_default();
        if index < stack.frames {
            return Some(());
        }
        stack.frames = index + 1;
        if stack.runs.len() <= run {
            stack.runs.resize_with(run + 1, Vec::new);
        }
        stack.runs[run].push(StackFrame {
            function,
            file: Some(file),
            line: Some(line).filter(|line| *line > 0),
            ..StackFrame::default()
        });
        Some(())
    }

    /// Puts the functions of a stack in the place of the interpreter's. `cut` tells whether outer frames are missing.
    pub(super) fn merge(&self, stack: i64, native: Vec<StackFrame>, cut: bool) -> Vec<StackFrame> {
        let Some(PythonStack { runs, frames }) = self.0.get(&stack) else {
            return native;
        };
        let executes = |f: &StackFrame| f.function.starts_with(EXECUTES);
        let places = native.iter().filter(|f| executes(f)).count();
        // The outermost ones belong together unless a stack is cut. Within, the C function may have no Python function
        // yet, or code that has no symbol.
        let whole = !cut && *frames < MOST;
        let missing = if whole {
            runs.len().saturating_sub(places)
        } else {
            0
        };
        let ahead = if whole {
            places.saturating_sub(runs.len())
        } else {
            0
        };
        let (inner, mut runs) = (runs.iter().take(missing), runs.iter().skip(missing));
        let mut inner = Some(inner.flatten());
        let mut merged = Vec::new();
        let mut place = 0;
        for frame in native {
            if !executes(&frame) {
                merged.push(frame);
                continue;
            }
            merged.extend(inner.take().into_iter().flatten().cloned());
            let run = if place < ahead { None } else { runs.next() };
            match run {
                Some(run) if !run.is_empty() => merged.extend(run.iter().cloned()),
                _ => merged.push(frame),
            }
            place += 1;
        }
        merged.extend(inner.into_iter().flatten().chain(runs.flatten()).cloned());
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(text: &str) -> Vec<StackFrame> {
        let frame = |name: &str| StackFrame {
            function: name.replace('@', EXECUTES),
            ..StackFrame::default()
        };
        text.split_whitespace().map(frame).collect()
    }

    fn merged(runs: &str, native: &str, cut: bool) -> String {
        let runs: Vec<_> = runs.split('|').map(frames).collect();
        let frames_of_all = runs.iter().map(Vec::len).sum();
        let stack = PythonStack {
            runs,
            frames: frames_of_all,
        };
        let stacks = PythonStacks([(7, stack)].into());
        let names = stacks.merge(7, frames(native), cut).into_iter();
        let names: Vec<String> = names.map(|f| f.function.replace(EXECUTES, "@")).collect();
        names.join(" ")
    }

    #[test]
    fn python_functions_replace_the_function_that_executes_them() {
        assert_eq!(merged("f g", "c @ main", false), "c f g main");
        assert_eq!(
            merged("f|g h", "c @ call @ main", false),
            "c f call g h main"
        );
        assert_eq!(merged("f|g", "@.cold call @ main", false), "f call g main");
        // A function that was just entered, by its own shim or not at all.
        assert_eq!(merged("|g", "c @ call @ main", false), "c @ call g main");
        assert_eq!(merged("g", "c @ call @ main", false), "c @ call g main");
        // The innermost code has no symbol.
        assert_eq!(
            merged("f|g|h", "0x12 call @ call @ main", false),
            "0x12 call f g call h main"
        );
        // Nothing is in the stack, or its outer part is missing.
        assert_eq!(merged("f|g", "c main", false), "c main f g");
        assert_eq!(merged("f|g|h", "c @ call @", true), "c f call g h");
        assert_eq!(merged("f", "c @ call @", true), "c f call @");
        let other = PythonStacks::default().merge(0, frames("c @"), false);
        assert_eq!(other, frames("c @"));
    }
}
