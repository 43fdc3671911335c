//! Rust files of a folder, and their words.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};

/// A word, and the line it stands on.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

/// The identifiers, literals, `::` and single punctuation characters of Rust source. Comments vanish, and documentation
/// becomes literals.
pub fn tokenize(source: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    flatten(source.parse().expect("Rust source"), &mut tokens);
    tokens
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    let push = |text: String, span: Span, tokens: &mut Vec<Token>| {
        tokens.push(Token { text, line: span.start().line });
    };
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::None => ("", ""),
                };
                push(open.to_string(), group.span_open(), tokens);
                flatten(group.stream(), tokens);
                push(close.to_string(), group.span_close(), tokens);
            }
            TokenTree::Punct(colon)
                if colon.as_char() == ':' && colon.spacing() == Spacing::Joint =>
            {
                let is_path =
                    matches!(trees.peek(), Some(TokenTree::Punct(next)) if next.as_char() == ':');
                if is_path {
                    trees.next();
                }
                push(String::from(if is_path { "::" } else { ":" }), colon.span(), tokens);
            }
            // A raw identifier names what the plain one does.
            other => {
                let text = other.to_string();
                push(text.trim_start_matches("r#").to_string(), other.span(), tokens);
            }
        }
    }
}

/// Every Rust file under `dir`.
pub fn rust_files(dir: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    for entry in entries {
        let path = entry.expect("directory entry").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
