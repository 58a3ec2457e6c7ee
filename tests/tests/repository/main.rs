//! The repository: its documents, its scripts, the layers of its code, and the public API.

mod documents;
mod layers;
mod public_api;
mod scripts;
