//! Arithmetic on text: numbers, `+ - * /` and parentheses.

use anyhow::{Result, bail, ensure};

/// How deep parentheses and signs may be nested.
const DEEPEST: usize = 64;

/// The value of an expression.
pub fn evaluate(text: &str) -> Result<f64> {
    let mut reader = Reader {
        rest: text.trim_start(),
        depth: 0,
    };
    let value = reader.sum()?;
    ensure!(
        reader.rest.is_empty(),
        "`{}` does not belong in an expression",
        reader.rest
    );
    ensure!(value.is_finite(), "the result is too large");
    Ok(value)
}

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl Reader<'_> {
    fn sum(&mut self) -> Result<f64> {
        let mut value = self.product()?;
        loop {
            if self.eat("+") {
                value += self.product()?;
            } else if self.eat("-") || self.eat("−") {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64> {
        let mut value = self.factor()?;
        loop {
            if self.eat("*") || self.eat("×") {
                value *= self.factor()?;
            } else if self.eat("/") || self.eat("÷") {
                let divisor = self.factor()?;
                ensure!(divisor != 0.0, "a division by zero");
                value /= divisor;
            } else {
                return Ok(value);
            }
        }
    }

    fn factor(&mut self) -> Result<f64> {
        self.depth += 1;
        ensure!(self.depth <= DEEPEST, "too many parentheses");
        let value = if self.eat("-") || self.eat("−") {
            -self.factor()?
        } else if self.eat("(") {
            let value = self.sum()?;
            ensure!(self.eat(")"), "a parenthesis is not closed");
            value
        } else {
            self.number()?
        };
        self.depth -= 1;
        Ok(value)
    }

    fn number(&mut self) -> Result<f64> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        let Ok(value) = number.parse() else {
            bail!("a number is missing before `{}`", self.rest)
        };
        self.rest = rest.trim_start();
        Ok(value)
    }

    fn eat(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.map_or(self.rest, str::trim_start);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_bind_closer_than_sums_and_parentheses_closest() {
        for (text, value) in [
            ("2 + 3 * 4", 14.0),
            ("(2 + 3) * 4", 20.0),
            ("10 - 4 - 3", 3.0),
            (" 7/2 ", 3.5),
            ("-(1.5 × 2)", -3.0),
        ] {
            assert_eq!(evaluate(text).ok(), Some(value), "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused_with_a_reason() {
        let deep = "(".repeat(10_000);
        for (text, reason) in [
            ("", "a number is missing"),
            ("1 +", "a number is missing"),
            ("2 apples", "`apples` does not belong"),
            ("(1", "not closed"),
            ("1 / (2 - 2)", "division by zero"),
            (&deep, "too many parentheses"),
        ] {
            let error = evaluate(text).map_err(|error| error.to_string());
            assert!(error.is_err_and(|error| error.contains(reason)), "{reason}");
        }
    }
}
