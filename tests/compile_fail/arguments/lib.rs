//! Tells a crate which arguments it is compiled with. Among them are the files of its dependencies, in which another call of the compiler
//! finds them too.

use proc_macro::TokenStream;

/// Expands to the compiler's arguments, as a slice of strings.
#[proc_macro]
pub fn compiler_arguments(_: TokenStream) -> TokenStream {
    let arguments: Vec<String> = std::env::args().collect();
    format!("&{arguments:?}").parse().unwrap()
}
