//! Fields of a payload: big-endian integers, and texts and bytes with their u32 length in front.
//!
//! A value that may be absent has one byte before it, 1 or 0. A list has its u32 count in front. What is read is checked
//! against what is there and against what it may be before anything is allocated for it, and what is written against the
//! same bounds: whoever writes what the other end cannot read loses the connection to it.

/// Why a payload cannot be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// It ends before a field does.
    #[error("a payload that ends before its fields do")]
    Short,
    /// A text, a list or bytes are longer than they may be.
    #[error("a field that is longer than it may be")]
    TooLong,
    /// A text is not UTF-8.
    #[error("a text that is not UTF-8")]
    Text,
    /// A number means nothing where it stands.
    #[error("a number that means nothing where it stands")]
    Value,
}

/// Takes fields off the front of a payload.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(payload: &'a [u8]) -> Self {
        Self(payload)
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], FieldError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(FieldError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FieldError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(FieldError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, FieldError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, FieldError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, FieldError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, FieldError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn bool(&mut self) -> Result<bool, FieldError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FieldError::Value),
        }
    }

    pub(super) fn tenant(&mut self) -> Result<[u8; 16], FieldError> {
        self.array()
    }

    /// Bytes, `bytes_max` at most.
    pub(super) fn bytes(&mut self, bytes_max: usize) -> Result<&'a [u8], FieldError> {
        let bytes = self.u32()? as usize;
        if bytes > bytes_max { Err(FieldError::TooLong) } else { self.take(bytes) }
    }

    /// A text of `bytes_max` bytes at most.
    pub(super) fn text(&mut self, bytes_max: usize) -> Result<String, FieldError> {
        let bytes = self.bytes(bytes_max)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| FieldError::Text)
    }

    pub(super) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, FieldError>,
    ) -> Result<Option<T>, FieldError> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    /// A list of `items_max` items at most, each of `item_bytes` bytes at least.
    pub(super) fn list<T>(
        &mut self,
        items_max: usize,
        item_bytes: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, FieldError>,
    ) -> Result<Vec<T>, FieldError> {
        let items = self.u32()? as usize;
        if items > items_max {
            return Err(FieldError::TooLong);
        }
        if items * item_bytes > self.0.len() {
            return Err(FieldError::Short);
        }
        let mut list = Vec::with_capacity(items);
        for _ in 0..items {
            list.push(read(self)?);
        }
        Ok(list)
    }
}

/// Puts fields behind each other. What cannot be written is remembered until [`Writer::finish`].
#[derive(Default)]
pub(super) struct Writer {
    out: Vec<u8>,
    fault: Option<FieldError>,
}

impl Writer {
    pub(super) fn finish(self) -> Result<Vec<u8>, FieldError> {
        self.fault.map_or(Ok(self.out), Err)
    }

    /// Nothing of this can be sent.
    pub(super) fn fail(&mut self, fault: FieldError) {
        self.fault.get_or_insert(fault);
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.u8(value.into());
    }

    pub(super) fn tenant(&mut self, tenant: &[u8; 16]) {
        self.out.extend_from_slice(tenant);
    }

    fn length(&mut self, length: usize, length_max: usize) -> bool {
        match u32::try_from(length) {
            Ok(fits) if length <= length_max => {
                self.u32(fits);
                true
            }
            _ => {
                self.fail(FieldError::TooLong);
                false
            }
        }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8], bytes_max: usize) {
        if self.length(bytes.len(), bytes_max) {
            self.out.extend_from_slice(bytes);
        }
    }

    pub(super) fn text(&mut self, text: &str, bytes_max: usize) {
        self.bytes(text.as_bytes(), bytes_max);
    }

    pub(super) fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(super) fn list<T>(&mut self, items: &[T], items_max: usize, mut write: impl FnMut(&mut Self, &T)) {
        if self.length(items.len(), items_max) {
            items.iter().for_each(|item| write(self, item));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_in_their_order() {
        let mut writer = Writer::default();
        writer.u8(1);
        writer.u16(2);
        writer.u32(3);
        writer.u64(4);
        writer.bool(true);
        writer.text("é", 2);
        writer.optional(None, Writer::u32);
        writer.optional(Some(5), Writer::u32);
        writer.list(&[6, 7], 2, |writer, &item| writer.u16(item));
        let bytes = writer.finish().expect("nothing is too long");
        assert_eq!(bytes[..3], [1, 0, 2], "big-endian");
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.u8(), reader.u16(), reader.u32(), reader.u64()), (Ok(1), Ok(2), Ok(3), Ok(4)));
        assert_eq!((reader.bool(), reader.text(2)), (Ok(true), Ok("é".to_owned())));
        assert_eq!((reader.optional(Reader::u32), reader.optional(Reader::u32)), (Ok(None), Ok(Some(5))));
        assert_eq!(reader.list(2, 2, Reader::u16), Ok(vec![6, 7]));
        assert_eq!(reader.u8(), Err(FieldError::Short));
    }

    #[test]
    fn what_a_length_promises_has_to_be_there_and_within_bounds() {
        let huge = u32::MAX.to_be_bytes();
        assert_eq!(Reader::new(&huge).bytes(usize::MAX), Err(FieldError::Short));
        assert_eq!(Reader::new(&huge).bytes(1 << 20), Err(FieldError::TooLong));
        assert_eq!(Reader::new(&huge).list(usize::MAX >> 8, 16, Reader::u64), Err(FieldError::Short));
        assert_eq!(Reader::new(&huge).list(10_000, 16, Reader::u64), Err(FieldError::TooLong));
        assert_eq!(Reader::new(&[0, 0, 0, 1, 0xff]).text(8), Err(FieldError::Text));
        assert_eq!(Reader::new(&[2]).bool(), Err(FieldError::Value));
    }

    #[test]
    fn what_could_not_be_read_is_not_written() {
        let mut writer = Writer::default();
        writer.text("abc", 2);
        assert_eq!(writer.finish(), Err(FieldError::TooLong));
        let mut writer = Writer::default();
        writer.list(&[1, 2, 3], 2, |writer, &item| writer.u16(item));
        assert_eq!(writer.finish(), Err(FieldError::TooLong));
    }
}
