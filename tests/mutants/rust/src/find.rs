//! Finds the places of a file that can be changed, and what they can be changed into.

use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Arm, Attribute, BinOp, Block, Expr, ExprBinary, ExprIf, ExprMatch, ExprMethodCall, ExprRange,
    ExprUnary, ExprWhile, ImplItemFn, ItemConst, ItemFn, ItemImpl, ItemMod, ItemStatic, Lit, Macro,
    Pat, RangeLimits, ReturnType, Signature, Stmt, TraitItemFn, Type, UnOp,
};

use crate::operators::{other_method, others};
use crate::values::values;

/// How a change is put into the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// In the place of an expression.
    Expression,
    /// In the place of a statement.
    Statement,
    /// Before the first statement of a function, which returns the new text.
    Body,
    /// A guard of a match arm, which then matches nothing.
    Arm,
}

/// One change of a file.
#[derive(Debug)]
pub struct Change {
    pub at: Range<usize>,
    pub form: Form,
    pub new: String,
    /// The type and function around it.
    pub function: String,
    /// The text before and after, for people.
    pub words: (String, String),
}

/// Returns the changes of a file in the order of their places.
///
/// # Errors
/// When the text is not Rust.
pub fn changes(text: &str) -> syn::Result<Vec<Change>> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder { text, scope: Vec::new(), found: Vec::new() };
    finder.visit_file(&file);
    let mut found = finder.found;
    found.sort_by_key(|change| (change.at.start, usize::MAX - change.at.end));
    Ok(found)
}

struct Finder<'t> {
    text: &'t str,
    scope: Vec<String>,
    found: Vec<Change>,
}

impl Finder<'_> {
    fn source(&self, of: &impl Spanned) -> &str {
        &self.text[of.span().byte_range()]
    }

    fn add(&mut self, at: Range<usize>, form: Form, new: String) {
        let words = self.line_with(&at, &new);
        self.push(at, form, new, words);
    }

    fn push(&mut self, at: Range<usize>, form: Form, new: String, words: (String, String)) {
        self.found.push(Change { at, form, new, function: self.scope.join("::"), words });
    }

    fn replace(&mut self, of: &impl Spanned, new: String) {
        self.add(of.span().byte_range(), Form::Expression, new);
    }

    /// The lines around a change, before and after it, each as one line.
    fn line_with(&self, at: &Range<usize>, new: &str) -> (String, String) {
        let first = self.text[..at.start].rfind('\n').map_or(0, |end| end + 1);
        let last = self.text[at.end..].find('\n').map_or(self.text.len(), |end| at.end + end);
        let after = [&self.text[first..at.start], new, &self.text[at.end..last]].concat();
        (one_line(&self.text[first..last]), one_line(&after))
    }

    fn function(&mut self, signature: &Signature, block: &Block, attributes: &[Attribute]) {
        // Constants are computed without an environment. What Debug and Display print is no promise.
        let name = signature.ident.to_string();
        if signature.constness.is_some() || name == "fmt" || is_left_out(attributes) {
            return;
        }
        self.scope.push(name);
        if !block.stmts.is_empty() {
            let at = block.brace_token.span.open().byte_range().end;
            for value in values(&signature.output) {
                let words = ("body".to_owned(), format!("return {value}"));
                self.push(at..at, Form::Body, format!("return {value};"), words);
            }
        }
        visit::visit_block(self, block);
        self.scope.pop();
    }

    /// Changes a condition that has no operator of its own to change.
    fn negate(&mut self, condition: &Expr) {
        let has_own = matches!(condition, Expr::Binary(_) | Expr::Unary(_) | Expr::Let(_));
        if !has_own {
            self.replace(condition, format!("!({})", self.source(condition)));
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, &item.block, &item.attrs);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.sig, &item.block, &item.attrs);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block, &item.attrs);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if is_left_out(&item.attrs) {
            return;
        }
        let of = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            of => Some(one_line(self.source(of))),
        };
        self.scope.push(of.unwrap_or_default());
        item.items.iter().for_each(|item| self.visit_impl_item(item));
        self.scope.pop();
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_left_out(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        let (left, right) = (self.source(&binary.left), self.source(&binary.right));
        let made: Vec<_> = others(&binary.op)
            .iter()
            .map(|other| match is_assignment(&binary.op) {
                true => format!("{left} {other} {right}"),
                false => format!("({left}) {other} ({right})"),
            })
            .collect();
        // A `let` may only stand in a chain of conditions.
        if !has_let(&binary.left) && !has_let(&binary.right) {
            let operator = binary.op.span().byte_range();
            for (new, other) in made.into_iter().zip(others(&binary.op)) {
                let words = self.line_with(&operator, other);
                self.push(binary.span().byte_range(), Form::Expression, new, words);
            }
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast ExprUnary) {
        if matches!(unary.op, UnOp::Not(_) | UnOp::Neg(_)) {
            self.replace(unary, self.source(&unary.expr).to_owned());
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_if(&mut self, of: &'ast ExprIf) {
        self.negate(&of.cond);
        visit::visit_expr_if(self, of);
    }

    fn visit_expr_while(&mut self, of: &'ast ExprWhile) {
        self.negate(&of.cond);
        visit::visit_expr_while(self, of);
    }

    fn visit_expr_range(&mut self, range: &'ast ExprRange) {
        // A literal is changed as such.
        if let Some(end) = range.end.as_deref().filter(|end| !matches!(end, Expr::Lit(_))) {
            let start = range.start.as_ref().map_or("", |start| self.source(start));
            let new = match range.limits {
                RangeLimits::HalfOpen(_) => format!("{start}..({}) + 1", self.source(end)),
                RangeLimits::Closed(_) => format!("{start}..=({}) - 1", self.source(end)),
            };
            self.replace(range, new);
        }
        visit::visit_expr_range(self, range);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if let Some(other) = other_method(&call.method.to_string()) {
            let (whole, name) = (call.span().byte_range(), call.method.span().byte_range());
            let (before, after) =
                (&self.text[whole.start..name.start], &self.text[name.end..whole.end]);
            let new = [before, other, after].concat();
            let words = self.line_with(&name, other);
            self.push(whole, Form::Expression, new, words);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_match(&mut self, of: &'ast ExprMatch) {
        let catches_all = |arm: &Arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none();
        let is_total = of.arms.iter().any(catches_all);
        for arm in &of.arms {
            let arrow = arm.fat_arrow_token.span().byte_range().start;
            match &arm.guard {
                Some((_, guard)) if !has_let(guard) => {
                    self.replace(&**guard, "true".to_owned());
                    self.replace(&**guard, "false".to_owned());
                }
                None if is_total && !catches_all(arm) => {
                    let words = (one_line(self.source(&arm.pat)), "no such arm".to_owned());
                    self.push(arrow..arrow, Form::Arm, String::new(), words);
                }
                _ => {}
            }
        }
        visit::visit_expr_match(self, of);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement {
            let called = match expression {
                Expr::Try(inner) => &*inner.expr,
                other => other,
            };
            if matches!(called, Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_)) {
                let words = (one_line(self.source(statement)), "nothing".to_owned());
                let at = statement.span().byte_range();
                self.push(at, Form::Statement, String::new(), words);
            }
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_lit(&mut self, literal: &'ast syn::ExprLit) {
        if let Lit::Int(number) = &literal.lit
            && let Ok(value) = number.base10_parse::<u64>()
            && let Some(next) = value.checked_add(1)
        {
            self.replace(literal, format!("{next}{}", number.suffix()));
        }
        if let Lit::Bool(value) = &literal.lit {
            self.replace(literal, (!value.value).to_string());
        }
    }

    fn visit_expr_block(&mut self, of: &'ast syn::ExprBlock) {
        if !is_left_out(&of.attrs) {
            visit::visit_expr_block(self, of);
        }
    }

    fn visit_expr_repeat(&mut self, of: &'ast syn::ExprRepeat) {
        // The length is a constant.
        self.visit_expr(&of.expr);
    }

    // What is left as it is: constants, types, patterns, attributes and macros.

    fn visit_item_const(&mut self, _: &'ast ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_static(&mut self, _: &'ast ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_return_type(&mut self, _: &'ast ReturnType) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_macro(&mut self, _: &'ast Macro) {}
}

/// Whether code is a test's, or for other builds: without one of the features, or not for Unix.
fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        let of = attribute.meta.require_list().map(|list| list.tokens.to_string());
        let is_other = of.is_ok_and(|of| of == "test" || of.starts_with("not ("));
        attribute.path().is_ident("test") || (is_cfg && is_other)
    })
}

fn is_assignment(operator: &BinOp) -> bool {
    others(operator).iter().any(|other| other.ends_with('=') && !is_comparison(other))
}

fn is_comparison(operator: &str) -> bool {
    ["==", "!=", "<=", ">="].contains(&operator)
}

/// Whether a condition is a chain with a `let` in it.
fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(of) => {
            matches!(of.op, BinOp::And(_)) && (has_let(&of.left) || has_let(&of.right))
        }
        _ => false,
    }
}

fn one_line(text: &str) -> String {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let words: Vec<_> = code.flat_map(str::split_whitespace).collect();
    words.join(" ")
}
