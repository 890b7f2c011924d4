//! Images: their tables and rings, used by handlers and by the controller.

mod answers;
mod hostile;
mod measured;
mod processes;
mod world;
