//! Properties of random modules and of random texts: the text form is read back, the verifier
//! accepts what the builder makes, nothing panics.

use proptest::collection::vec;
use proptest::prelude::*;
use spile_lir::counted::count;
use spile_lir::func::LoopForm;
use spile_lir::interp::{Machine, NoHost, RegionKind, Trap};
use spile_lir::reader::read;
use spile_lir::repeat::outline;
use spile_lir::verify::verify;
use spile_lir::{Module, testgen};

#[path = "common/robust.rs"]
mod robust;
use robust::LIMITS;

/// Runs `@random` on a region; gives the result and the region afterwards.
fn run(module: &Module, region: &[u8], args: [u64; 2]) -> Result<(u64, Vec<u8>), Trap> {
    let mut machine = Machine::new(module, 1_000_000);
    let at = machine.memory.add(region.to_vec(), RegionKind::Memory);
    let result = machine.run("random", &[at, args[0], args[1]], &mut NoHost)?;
    let after = machine.memory.region(at).expect("the region stays");
    Ok((result, after.to_vec()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_modules_are_valid_and_read_back(
        numbers in vec(any::<u32>(), 0..120),
        region in vec(any::<u8>(), 64),
        args in any::<[u64; 2]>(),
    ) {
        let module = testgen::module(&numbers, true);
        verify(&module, &LIMITS).map_err(|e| TestCaseError::fail(format!("{e}\n{module}")))?;
        let text = module.to_string();
        let back = read(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert!(back.to_string() == text, "{back}\n{text}");
        // Values are numbered in another order, but a second way changes nothing.
        prop_assert_eq!(&read(&back.to_string()).expect("read before"), &back);
        verify(&back, &LIMITS).map_err(|e| TestCaseError::fail(format!("{e}\n{back}")))?;
        let result = run(&module, &region, args);
        prop_assert!(result.is_ok(), "{result:?}\n{module}");
        prop_assert_eq!(run(&back, &region, args), result);
    }

    #[test]
    fn loops_become_callbacks(
        numbers in vec(any::<u32>(), 0..160),
        region in vec(any::<u8>(), 64),
        args in any::<[u64; 2]>(),
    ) {
        let module = testgen::module(&numbers, true);
        let mut outlined = module.clone();
        // Some have more values than a context has space for.
        if outline(&mut outlined, &LIMITS).is_err() {
            return Ok(());
        }
        verify(&outlined, &LIMITS).map_err(|e| TestCaseError::fail(format!("{e}\n{module}\n{outlined}")))?;
        let bounds = outlined.funcs.iter().flat_map(|f| &f.blocks).filter_map(|b| b.bound.as_ref());
        prop_assert!(bounds.into_iter().all(|b| b.form != LoopForm::Callback));
        let (a, b) = (run(&module, &region, args), run(&outlined, &region, args));
        prop_assert!(a.is_ok() && a == b, "{a:?} {b:?}\n{module}\n{outlined}");
        outlined.funcs.iter_mut().for_each(count);
        prop_assert!(outlined.funcs.iter().flat_map(|f| &f.blocks).all(|b| b.bound.is_none()));
        let b = run(&outlined, &region, args);
        prop_assert!(a == b, "{a:?} {b:?}\n{module}\n{outlined}");
    }

    #[test]
    fn damaged_texts_do_not_panic(
        numbers in vec(any::<u32>(), 0..60),
        changes in vec((any::<u32>(), any::<u8>(), 0..4), 1..6),
    ) {
        let mut text = testgen::module(&numbers, true).to_string().into_bytes();
        let words: Vec<Vec<u8>> = text.split(|b| *b == b' ').map(<[u8]>::to_vec).collect();
        for (at, byte, how) in changes {
            let at = at as usize % text.len().max(1);
            match how {
                0 => text[at] = byte,
                1 => text.truncate(at),
                2 => drop(text.remove(at)),
                // A word of the text at a location where it does not belong.
                _ => {
                    let word = &words[usize::from(byte) % words.len()];
                    text.splice(at..at, word.iter().copied());
                }
            }
            if text.is_empty() {
                break;
            }
        }
        robust::all_stages(&text);
    }

    #[test]
    fn arbitrary_texts_do_not_panic(text in vec(any::<u8>(), 0..200)) {
        robust::all_stages(&text);
    }
}

proptest! {
    #[test]
    fn data_reads_back(runs in proptest::collection::vec((any::<u8>(), 1..200_usize), 0..40)) {
        let bytes = runs.iter().flat_map(|(byte, n)| std::iter::repeat_n(*byte, *n)).collect();
        let data = vec![spile_lir::func::ConstantData { name: "d".into(), bytes }];
        let module = spile_lir::func::Module { data, ..Default::default() };
        prop_assert_eq!(spile_lir::reader::read(&module.to_string()), Ok(module));
    }
}
