//! Filters of a search: which values of items pass.

use std::cmp::Ordering;

use crate::value::{Map, Value};

/// Most conditions of a filter.
pub const CONDITIONS_MAX: usize = 100;

/// What a filter demands of one field.
#[derive(Clone, Debug, PartialEq)]
enum Test {
    /// It equals this value.
    Equal(Value),
    /// It does not equal this value, or is not there.
    NotEqual(Value),
    /// It compares in this way with a value of its own kind.
    Order(&'static [Ordering], Value),
    /// It is an object whose fields pass.
    Fields(Vec<(String, Test)>),
    /// All of these hold.
    All(Vec<Test>),
}

/// A filter that was understood. The default lets every value pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter(Vec<(String, Test)>);

/// Why a filter is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFilter {
    /// A word that is no operator, beside one or in the position of one.
    #[error("Unsupported operator: {0}")]
    Operator(String),
    /// It has more conditions than are allowed.
    #[error("A filter has at most {CONDITIONS_MAX} conditions")]
    TooMany,
}

impl Filter {
    /// Reads a filter: fields by name, each with a value, with an object of fields, or with an
    /// object of operators.
    ///
    /// # Errors
    /// An unknown operator, operators beside names of fields, or too many conditions.
    pub fn read(map: &Map) -> Result<Self, BadFilter> {
        let mut left = CONDITIONS_MAX;
        Ok(Self(fields(map, &mut left)?))
    }

    /// Whether every value passes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a value passes.
    pub fn passes(&self, value: &Value) -> bool {
        // Nodes store what is no object, too.
        self.is_empty() || fields_pass(&self.0, value)
    }
}

fn fields(map: &Map, left: &mut usize) -> Result<Vec<(String, Test)>, BadFilter> {
    map.iter()
        .map(|(name, wanted)| {
            *left = left.checked_sub(1).ok_or(BadFilter::TooMany)?;
            Ok((name.to_string(), test(wanted, left)?))
        })
        .collect()
}

fn test(wanted: &Value, left: &mut usize) -> Result<Test, BadFilter> {
    let Value::Map(map) = wanted else {
        return Ok(Test::Equal(wanted.clone()));
    };
    if !map.keys().any(|name| name.starts_with('$')) {
        return Ok(Test::Fields(fields(map, left)?));
    }
    let operators = map.iter().map(|(name, operand)| {
        *left = left.checked_sub(1).ok_or(BadFilter::TooMany)?;
        let operand = operand.clone();
        Ok(match &**name {
            "$eq" => Test::Equal(operand),
            "$ne" => Test::NotEqual(operand),
            "$gt" => Test::Order(&[Ordering::Greater], operand),
            "$gte" => Test::Order(&[Ordering::Greater, Ordering::Equal], operand),
            "$lt" => Test::Order(&[Ordering::Less], operand),
            "$lte" => Test::Order(&[Ordering::Less, Ordering::Equal], operand),
            other => return Err(BadFilter::Operator(other.chars().take(80).collect())),
        })
    });
    operators.collect::<Result<_, _>>().map(Test::All)
}

fn fields_pass(fields: &[(String, Test)], value: &Value) -> bool {
    let Value::Map(map) = value else { return false };
    // A field that is not there counts as null, as LangGraph's server has it.
    fields
        .iter()
        .all(|(name, test)| passes(test, map.get(name).unwrap_or(&Value::Null)))
}

fn passes(test: &Test, value: &Value) -> bool {
    match test {
        Test::Equal(wanted) => equal(value, wanted),
        Test::NotEqual(other) => !equal(value, other),
        Test::Order(orders, other) => {
            compare(value, other).is_some_and(|order| orders.contains(&order))
        }
        Test::Fields(fields) => fields_pass(fields, value),
        Test::All(tests) => tests.iter().all(|test| passes(test, value)),
    }
}

/// Whether two values are equal; 1 and 1.0 are one number.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equal(a, b))
        }
        (Value::Map(a), Value::Map(b)) => {
            let has = |(name, a): (_, &Value)| b.get(name).is_some_and(|b| equal(a, b));
            a.len() == b.len() && a.iter().all(|(name, a)| has((&**name, a)))
        }
        _ => a == b || compare(a, b) == Some(Ordering::Equal),
    }
}

/// The order of two numbers or of two texts; nothing else has one.
fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Str(a), Value::Str(b)) => Some(a.cmp(b)),
        (Value::Float(_), _) | (_, Value::Float(_)) => a.as_f64()?.partial_cmp(&b.as_f64()?),
        _ => Some(whole(a)?.cmp(&whole(b)?)),
    }
}

fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Int(number) => Some(i128::from(*number)),
        Value::Uint(number) => Some(i128::from(*number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    fn read(filter: &Value) -> Result<Filter, BadFilter> {
        Filter::read(filter.as_map().expect("a filter is an object"))
    }

    #[test]
    fn fields_are_compared_with_values_and_by_operators() {
        let item = value!({
            "n": 1, "f": 1.5, "s": "b", "l": [1, 2], "o": {"a": 1, "b": {"c": 2}}, "t": true, "z": null,
            "big": 18_446_744_073_709_551_615_u64
        });
        for filter in [
            value!({}),
            value!({"n": 1, "s": "b"}),
            value!({"n": 1.0}),
            value!({"n": {"$eq": 1}}),
            value!({"n": {"$gte": 1, "$lt": 2}}),
            value!({"f": {"$gt": 1, "$lt": 2}}),
            value!({"big": {"$gt": 9_223_372_036_854_775_807_i64}}),
            value!({"s": {"$gt": "a", "$lte": "b"}}),
            value!({"l": [1.0, 2]}),
            value!({"o": {"a": 1}}),
            value!({"o": {"b": {"c": {"$gt": 1}}}}),
            value!({"o": {}}),
            value!({"n": {"$ne": 2}}),
            value!({"missing": {"$ne": 1}}),
            value!({"missing": null, "z": null}),
            value!({"o": {"$eq": {"b": {"c": 2.0}, "a": 1}}}),
        ] {
            assert!(read(&filter).unwrap().passes(&item), "{filter}");
        }
        for filter in [
            value!({"n": 2}),
            value!({"n": true}),
            value!({"t": 1}),
            value!({"n": "1"}),
            value!({"n": {"$gt": "0"}}),
            value!({"s": {"$gt": 0}}),
            value!({"t": {"$gte": true}}),
            value!({"l": {"$gt": [1]}}),
            value!({"z": {"$lte": null}}),
            value!({"missing": {"$gt": 0}}),
            value!({"missing": {"$lt": 0}}),
            value!({"missing": 1}),
            value!({"l": [2, 1]}),
            value!({"l": [1]}),
            value!({"n": {}}),
            value!({"o": {"$eq": {"a": 1}}}),
            value!({"n": {"$gte": 1, "$ne": 1}}),
        ] {
            assert!(!read(&filter).unwrap().passes(&item), "{filter}");
        }
        assert!(!read(&value!({"n": 1})).unwrap().passes(&value!([1])));
        assert!(Filter::default().passes(&value!([1])));
    }

    #[test]
    fn what_is_no_operator_is_refused_wherever_it_is() {
        for (filter, word) in [
            (value!({"a": {"$in": [1]}}), "$in"),
            (value!({"a": {"$gt": 1, "b": 2}}), "b"),
            (value!({"a": {"b": {"$": 1}}}), "$"),
        ] {
            let refused = read(&filter).unwrap_err();
            assert_eq!(refused, BadFilter::Operator(word.to_owned()));
        }
        let many: Map = (0..101)
            .map(|n| (format!("k{n}").into(), n.into()))
            .collect();
        assert_eq!(Filter::read(&many), Err(BadFilter::TooMany));
    }
}
