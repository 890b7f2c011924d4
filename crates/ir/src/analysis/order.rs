//! The orders in which passes visit blocks.

use spile_cast::Cast;

use crate::*;

/// The reachable blocks, each before its successors unless there is a loop (reverse post-order). A
/// jump's first target follows its block where possible.
pub fn reverse_post_order(body: &Body) -> Vec<BlockId> {
    let mut order = post_order(body);
    order.reverse();
    order
}

/// The reachable blocks, each after its successors unless there is a loop.
fn post_order(body: &Body) -> Vec<BlockId> {
    let mut seen = vec![false; body.blocks.len()];
    let mut order = Vec::with_capacity(body.blocks.len());
    let Some(first) = body.blocks.first() else {
        return order;
    };
    // The path from the entry: each block with the successors still to visit.
    let mut path = Vec::with_capacity(body.blocks.len().min(32));
    path.push((BlockId(0), first.successors()));
    seen[0] = true;
    while let Some((block, rest)) = path.last_mut() {
        match rest.next_back() {
            Some(next) => {
                if !std::mem::replace(&mut seen[next.index()], true) {
                    path.push((next, body.blocks[next.index()].successors()));
                }
            }
            None => {
                order.push(*block);
                path.pop();
            }
        }
    }
    order
}

/// All blocks, with reachable ones after their successors unless there is a loop: the order for
/// facts that flow backwards.
pub fn backwards(body: &Body) -> Vec<BlockId> {
    let mut order = post_order(body);
    if order.len() < body.blocks.len() {
        let mut seen = vec![false; body.blocks.len()];
        order.iter().for_each(|b| seen[b.index()] = true);
        let rest = (0..body.blocks.len()).rev().filter(|b| !seen[*b]);
        order.extend(rest.map(|b| BlockId(b.fit())));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(code: &str) -> Body {
        let text = format!(
            "site @0 \"\"\nhandler \"k\" points 1 sys_enter(all) @0 {{ regs r0: long {code} }}\n"
        );
        let mut program = reader::read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        program.handlers.remove(0).body
    }

    #[test]
    fn blocks_stand_before_their_successors() {
        let body = body(
            "b0: branch r0, b2, b1 b1: jump b3 b2: jump b3 b3: branch r0, b1, b5 b4: ret b5: ret",
        );
        let order = reverse_post_order(&body);
        let at = |b: u32| order.iter().position(|o| o.0 == b);
        assert_eq!(order[0].0, 0);
        assert!(at(2) < at(3) && at(3) < at(5) && at(4).is_none());
        let all = backwards(&body);
        assert_eq!(all.len(), 6);
        assert_eq!(all[5].0, 4);
        assert_eq!(all[4].0, 0);
    }
}
