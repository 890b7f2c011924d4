//! Frames of user stacks in marks: the file and offset of each frame, for the controller.

use super::texts::{HEX, StackLayout};
use crate::func::Module;
use crate::library::area::function;
use crate::library::unwind::{EXACT, at};

/// How frames are appended.
pub mod frame {
    /// With their addresses.
    pub const FULL: i32 = 1;
    /// With a space in front.
    pub const SPACE: i32 = 2;
}

/// `append_frame`.
pub(super) fn append_frame(layout: &StackLayout) -> Module {
    let contract = "\
Appends a frame as `FILE.OFFSET`, in the full form with the address in front. A frame outside of files is
its address, 0 and the process. All numbers are hexadecimal.
index: of the frame. how: bits of `frame`.
Cost: three numbers.";
    let name = ("append_frame", contract);
    let func = function(layout, name, ["index", "how"], |t, [index, how]| {
        let f = t.f;
        let [address, file, offset] = t.user_frame(index);
        t.if_any(how, frame::SPACE, || t.literal(" "));
        f.block(|bare| {
            f.block(|full| {
                full.leave_if(file.eq(0));
                full.leave_if(how.has(frame::FULL));
                bare.leave();
            });
            t.hex(address);
            t.literal(".");
        });
        t.hex(file);
        t.literal(".");
        let second = f.var("second", offset);
        f.if_(file.eq(0), || {
            second.set((offset & f.constant(EXACT)) | t.unwind(at::TGID));
        });
        t.hex(second.get());
    });
    Module::from(func).with_externs(&[HEX])
}

/// `append_frames`.
pub(super) fn append_frames(layout: &StackLayout) -> Module {
    let contract = "\
Appends up to `most` frames from `first` on, as append_frame does, with spaces between them.
how: bits of `frame` for the first one.
Cost: append_frame for each frame.";
    let (name, params) = (("append_frames", contract), ["how", "first", "most"]);
    let func = function(layout, name, params, |t, [how, first, most]| {
        let f = t.f;
        let how = f.var("how", how);
        t.indices((first, most), layout.most, |index| {
            f.break_if(index.ge(t.unwind(at::N)));
            f.call("append_frame", &[index, how.get()]);
            how.set(how.get() | frame::SPACE);
        });
    });
    Module::from(func).with_externs(&[("append_frame", 2)])
}
