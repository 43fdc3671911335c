//! The columns of a table of events, and their builders.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Decimal128Builder, Float32Builder, Float64Builder, Int8Builder,
    Int16Builder, Int32Builder, Int64Builder, ListBuilder, StringBuilder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use corelocal::trace::format::{FieldType, Type};

use crate::names::{but_for_case, unique};
use crate::{Event, Recording, Value, What};

/// Digits of the largest number of 64 bits.
const DIGITS: u8 = 20;

/// Builds batches of rows.
pub(super) struct Rows {
    schema: SchemaRef,
    host: String,
    process: i64,
    times: Int64Builder,
    names: StringBuilder,
    whats: StringBuilder,
    hosts: StringBuilder,
    processes: Int64Builder,
    threads: Int64Builder,
    thread_names: StringBuilder,
    cpus: Int32Builder,
    traces: StringBuilder,
    spans: StringBuilder,
    parents: StringBuilder,
    durations: Int64Builder,
    cuts: ListBuilder<StringBuilder>,
    fields: Vec<Column>,
    /// The column of each field of each site.
    of_sites: Vec<Vec<usize>>,
    /// Rows of the batch.
    pub(super) len: usize,
}

/// A column of a field.
struct Column {
    name: String,
    of: FieldType,
    values: Values,
    /// Whether the row has a value.
    is_filled: bool,
}

enum Values {
    I8(Int8Builder),
    I16(Int16Builder),
    I32(Int32Builder),
    I64(Int64Builder),
    Decimal(Decimal128Builder),
    F32(Float32Builder),
    F64(Float64Builder),
    Bool(BooleanBuilder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    /// Whole numbers, or floats.
    Wholes(ListBuilder<Decimal128Builder>),
    Floats(ListBuilder<Float64Builder>),
}

/// Returns the columns that each event has.
fn fixed() -> Vec<Field> {
    let field = |name: &str, of: DataType, is_nullable| Field::new(name, of, is_nullable);
    vec![
        field("time_ns", DataType::Int64, false),
        field("name", DataType::Utf8, false),
        field("what", DataType::Utf8, false),
        field("host", DataType::Utf8, false),
        field("process", DataType::Int64, false),
        field("thread", DataType::Int64, false),
        field("thread_name", DataType::Utf8, false),
        field("cpu", DataType::Int32, false),
        field("trace_id", DataType::Utf8, true),
        field("span_id", DataType::Utf8, true),
        field("parent_id", DataType::Utf8, true),
        field("duration_ns", DataType::Int64, true),
        field("cut", DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))), true),
    ]
}

impl Rows {
    pub(super) fn new(recording: &Recording) -> Rows {
        let mut columns: Vec<Column> = Vec::new();
        let mut of_sites = Vec::new();
        let fixed = fixed();
        for (site, number) in recording.numbered_sites() {
            let own: Vec<usize> = site
                .fields
                .iter()
                .map(|(name, of)| {
                    let is_this = |column: &Column| column.name == *name && column.of == *of;
                    columns.iter().position(is_this).unwrap_or_else(|| {
                        let values = Values::new(*of);
                        columns.push(Column {
                            name: name.clone(),
                            of: *of,
                            values,
                            is_filled: false,
                        });
                        columns.len() - 1
                    })
                })
                .collect();
            of_sites.resize(usize::from(number) + 1, Vec::new());
            of_sites[usize::from(number)] = own;
        }
        name(&mut columns, &fixed);
        let fields =
            columns.iter().map(|column| Field::new(&column.name, column.values.of(), true));
        let schema = Arc::new(Schema::new(fixed.into_iter().chain(fields).collect::<Vec<_>>()));
        Rows {
            schema,
            host: recording.host(),
            process: recording.process() as i64,
            times: Int64Builder::new(),
            names: StringBuilder::new(),
            whats: StringBuilder::new(),
            hosts: StringBuilder::new(),
            processes: Int64Builder::new(),
            threads: Int64Builder::new(),
            thread_names: StringBuilder::new(),
            cpus: Int32Builder::new(),
            traces: StringBuilder::new(),
            spans: StringBuilder::new(),
            parents: StringBuilder::new(),
            durations: Int64Builder::new(),
            cuts: ListBuilder::new(StringBuilder::new()),
            fields: columns,
            of_sites,
            len: 0,
        }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub(super) fn push(&mut self, event: &Event<'_>) {
        let identity = &event.identity;
        self.times.append_value(event.time as i64);
        self.names.append_value(event.name);
        self.whats.append_value(match event.what {
            What::Event => "event",
            What::Begin => "begin",
            What::End => "end",
        });
        self.hosts.append_value(&self.host);
        self.processes.append_value(self.process);
        self.threads.append_value(event.thread.into());
        self.thread_names.append_value(&event.thread_name);
        self.cpus.append_value(event.cpu as i32);
        let hex = |id: u64| (id != 0).then(|| format!("{id:016x}"));
        let trace = (identity.trace != 0).then(|| format!("{:032x}", identity.trace));
        self.traces.append_option(trace);
        self.spans.append_option(hex(identity.span));
        self.parents.append_option(hex(identity.parent));
        let duration = identity.began.map(|began| event.time.saturating_sub(began) as i64);
        self.durations.append_option(duration);
        let mut is_cut = false;
        for name in event.cut_fields() {
            self.cuts.values().append_value(name);
            is_cut = true;
        }
        self.cuts.append(is_cut);
        let none = Vec::new();
        let columns = self.of_sites.get(usize::from(event.site_number)).unwrap_or(&none);
        for ((_, value), &column) in event.fields.iter().zip(columns) {
            let column = &mut self.fields[column];
            column.is_filled = column.values.push(value);
        }
        for column in &mut self.fields {
            if !std::mem::take(&mut column.is_filled) {
                column.values.push_none();
            }
        }
        self.len += 1;
    }

    /// Returns the rows so far.
    pub(super) fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        self.len = 0;
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.times.finish()),
            Arc::new(self.names.finish()),
            Arc::new(self.whats.finish()),
            Arc::new(self.hosts.finish()),
            Arc::new(self.processes.finish()),
            Arc::new(self.threads.finish()),
            Arc::new(self.thread_names.finish()),
            Arc::new(self.cpus.finish()),
            Arc::new(self.traces.finish()),
            Arc::new(self.spans.finish()),
            Arc::new(self.parents.finish()),
            Arc::new(self.durations.finish()),
            Arc::new(self.cuts.finish()),
        ];
        columns.extend(self.fields.iter_mut().map(|column| column.values.take()));
        RecordBatch::try_new(self.schema(), columns)
    }
}

/// Gives the columns names that differ in more than the case of letters, and do not depend on their order.
fn name(columns: &mut [Column], fixed: &[Field]) {
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by(|&a, &b| {
        let key = |nth: usize| (&columns[nth].name, type_name(columns[nth].of));
        key(a).cmp(&key(b))
    });
    let names = order.iter().map(|&nth| {
        let Column { name, of, .. } = &columns[nth];
        let taken = fixed.iter().map(|field| field.name().as_str());
        let mut others = taken.chain(
            columns.iter().enumerate().filter(|(other, _)| *other != nth).map(|(_, c)| &*c.name),
        );
        match others.any(|other| but_for_case(other, name)) {
            true => format!("{name}/{}", type_name(*of)),
            false => name.clone(),
        }
    });
    let names: Vec<String> = names.collect();
    let taken: Vec<&str> = fixed.iter().map(|field| field.name().as_str()).collect();
    // Of `a` and `A` with the same type one has a number.
    let names = unique(names.iter().map(String::as_str), &taken, but_for_case);
    for (nth, name) in order.into_iter().zip(names) {
        columns[nth].name = name;
    }
}

/// Returns the type in a column's name.
fn type_name(of: FieldType) -> String {
    let name = format!("{:?}", of.of).to_lowercase();
    if of.is_array { format!("{name}s") } else { name }
}

impl Values {
    fn new(of: FieldType) -> Values {
        let wholes = || Decimal128Builder::new().with_data_type(whole());
        match (of.of, of.is_array) {
            (Type::F32 | Type::F64, true) => {
                Values::Floats(ListBuilder::new(Float64Builder::new()))
            }
            (_, true) => Values::Wholes(ListBuilder::new(wholes())),
            (Type::I8, _) => Values::I8(Int8Builder::new()),
            (Type::I16 | Type::U8, _) => Values::I16(Int16Builder::new()),
            (Type::I32 | Type::U16, _) => Values::I32(Int32Builder::new()),
            (Type::I64 | Type::U32 | Type::Duration, _) => Values::I64(Int64Builder::new()),
            (Type::U64, _) => Values::Decimal(wholes()),
            (Type::F32, _) => Values::F32(Float32Builder::new()),
            (Type::F64, _) => Values::F64(Float64Builder::new()),
            (Type::Bool, _) => Values::Bool(BooleanBuilder::new()),
            (Type::Str | Type::Any, _) => Values::Text(StringBuilder::new()),
            (Type::Bytes, _) => Values::Bytes(BinaryBuilder::new()),
        }
    }

    fn of(&self) -> DataType {
        let list = |of| DataType::List(Arc::new(Field::new("item", of, true)));
        match self {
            Values::I8(_) => DataType::Int8,
            Values::I16(_) => DataType::Int16,
            Values::I32(_) => DataType::Int32,
            Values::I64(_) => DataType::Int64,
            Values::Decimal(_) => whole(),
            Values::F32(_) => DataType::Float32,
            Values::F64(_) => DataType::Float64,
            Values::Bool(_) => DataType::Boolean,
            Values::Text(_) => DataType::Utf8,
            Values::Bytes(_) => DataType::Binary,
            Values::Wholes(_) => list(whole()),
            Values::Floats(_) => list(DataType::Float64),
        }
    }

    /// Appends a value. False: it is none.
    fn push(&mut self, value: &Value) -> bool {
        if *value == Value::Missing {
            return false;
        }
        match self {
            Values::I8(builder) => builder.append_value(number(value) as i8),
            Values::I16(builder) => builder.append_value(number(value) as i16),
            Values::I32(builder) => builder.append_value(number(value) as i32),
            Values::I64(builder) => builder.append_value(number(value) as i64),
            Values::Decimal(builder) => builder.append_value(number(value)),
            Values::F32(builder) => builder.append_value(float(value) as f32),
            Values::F64(builder) => builder.append_value(float(value)),
            Values::Bool(builder) => builder.append_value(*value == Value::Bool(true)),
            Values::Text(builder) => match value {
                Value::Str(text, _) => builder.append_value(text),
                value => builder.append_value(value.text()),
            },
            Values::Bytes(builder) => match value {
                Value::Bytes(bytes, _) => builder.append_value(bytes),
                _ => builder.append_null(),
            },
            Values::Wholes(builder) => {
                elements(value)
                    .iter()
                    .for_each(|value| builder.values().append_value(number(value)));
                builder.append(true);
            }
            Values::Floats(builder) => {
                elements(value)
                    .iter()
                    .for_each(|value| builder.values().append_value(float(value)));
                builder.append(true);
            }
        }
        true
    }

    fn push_none(&mut self) {
        match self {
            Values::I8(builder) => builder.append_null(),
            Values::I16(builder) => builder.append_null(),
            Values::I32(builder) => builder.append_null(),
            Values::I64(builder) => builder.append_null(),
            Values::Decimal(builder) => builder.append_null(),
            Values::F32(builder) => builder.append_null(),
            Values::F64(builder) => builder.append_null(),
            Values::Bool(builder) => builder.append_null(),
            Values::Text(builder) => builder.append_null(),
            Values::Bytes(builder) => builder.append_null(),
            Values::Wholes(builder) => builder.append(false),
            Values::Floats(builder) => builder.append(false),
        }
    }

    fn take(&mut self) -> ArrayRef {
        match self {
            Values::I8(builder) => Arc::new(builder.finish()),
            Values::I16(builder) => Arc::new(builder.finish()),
            Values::I32(builder) => Arc::new(builder.finish()),
            Values::I64(builder) => Arc::new(builder.finish()),
            Values::Decimal(builder) => Arc::new(builder.finish()),
            Values::F32(builder) => Arc::new(builder.finish()),
            Values::F64(builder) => Arc::new(builder.finish()),
            Values::Bool(builder) => Arc::new(builder.finish()),
            Values::Text(builder) => Arc::new(builder.finish()),
            Values::Bytes(builder) => Arc::new(builder.finish()),
            Values::Wholes(builder) => Arc::new(builder.finish()),
            Values::Floats(builder) => Arc::new(builder.finish()),
        }
    }
}

/// Whole numbers of 64 bits, signed or not: Parquet's unsigned ones are read as signed by some programs.
fn whole() -> DataType {
    DataType::Decimal128(DIGITS, 0)
}

fn number(value: &Value) -> i128 {
    match value {
        Value::Unsigned(number) | Value::Duration(number) => (*number).into(),
        Value::Signed(number) => (*number).into(),
        _ => 0,
    }
}

fn float(value: &Value) -> f64 {
    if let Value::Float(number) = value { *number } else { 0.0 }
}

fn elements(value: &Value) -> &[Value] {
    if let Value::Array(values, _) = value { values } else { &[] }
}
