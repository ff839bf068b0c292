//! A partition as bytes, for its way to another node.
//!
//! ```text
//! tenant 16 | queue | partition | messages u32 | each: age_ms u64, payload, reply_to
//!           | groups u32 | each: name, fresh_from u32, returned u32, each: message u32, attempts u32
//! ```
//!
//! Numbers are big-endian; texts and payloads have their length as u32 in front; no `reply_to` is an empty one.

use queen_ephemeral::{MalformedParcel, Parcel, ParcelBuilder, ParcelGroup, Redelivery, TenantId};

/// Why bytes are no partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParcelError {
    /// They end too early, or go on behind the end, or a text is none.
    #[error("its bytes cannot be read")]
    Bytes,
    /// What they say makes no partition.
    #[error(transparent)]
    Malformed(#[from] MalformedParcel),
}

/// Writes a partition.
pub(super) fn encode(parcel: &Parcel) -> Vec<u8> {
    let mut out = Vec::with_capacity(parcel.payload_bytes() as usize + parcel.messages().len() * 16 + 256);
    out.extend_from_slice(&parcel.tenant().0);
    put(&mut out, parcel.queue().as_bytes());
    put(&mut out, parcel.partition().as_bytes());
    number(&mut out, parcel.messages().len());
    for message in parcel.messages() {
        out.extend_from_slice(&message.age_ms.to_be_bytes());
        put(&mut out, message.payload);
        put(&mut out, message.reply_to.unwrap_or_default().as_bytes());
    }
    number(&mut out, parcel.groups().len());
    for group in parcel.groups() {
        put(&mut out, group.name.as_bytes());
        out.extend_from_slice(&group.fresh_from.to_be_bytes());
        number(&mut out, group.returned.len());
        for redelivery in &group.returned {
            out.extend_from_slice(&redelivery.message.to_be_bytes());
            out.extend_from_slice(&redelivery.attempts.to_be_bytes());
        }
    }
    out
}

fn number(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&u32::try_from(number).expect("an engine counts with less").to_be_bytes());
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Reads a partition.
pub(super) fn decode(bytes: &[u8]) -> Result<Parcel, ParcelError> {
    let mut reader = Reader(bytes);
    let tenant = TenantId(*reader.take(16)?.first_chunk().ok_or(ParcelError::Bytes)?);
    let (queue, partition) = (reader.text()?, reader.text()?);
    let mut builder = ParcelBuilder::new(tenant, queue, partition);
    for _ in 0..reader.u32()? {
        let age_ms = u64::from_be_bytes(*reader.take(8)?.first_chunk().ok_or(ParcelError::Bytes)?);
        let payload = reader.bytes()?;
        let reply_to = reader.text()?;
        builder.message(age_ms, payload, (!reply_to.is_empty()).then_some(reply_to));
    }
    for _ in 0..reader.u32()? {
        let (name, fresh_from) = (reader.text()?.into(), reader.u32()?);
        let mut returned = Vec::new();
        for _ in 0..reader.u32()? {
            returned.push(Redelivery { message: reader.u32()?, attempts: reader.u32()? });
        }
        builder.group(ParcelGroup { name, fresh_from, returned });
    }
    if !reader.0.is_empty() {
        return Err(ParcelError::Bytes);
    }
    Ok(builder.build()?)
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], ParcelError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(ParcelError::Bytes)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, ParcelError> {
        Ok(u32::from_be_bytes(*self.take(4)?.first_chunk().ok_or(ParcelError::Bytes)?))
    }

    fn bytes(&mut self) -> Result<&'b [u8], ParcelError> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn text(&mut self) -> Result<&'b str, ParcelError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| ParcelError::Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcel() -> Parcel {
        let mut builder = ParcelBuilder::new(TenantId([7; 16]), "jobs", "p");
        builder.message(1500, b"{\"n\":1}", None);
        builder.message(20, b"2", Some("_inbox.mine"));
        let returned = vec![Redelivery { message: 0, attempts: 3 }];
        builder.group(ParcelGroup { name: "g".into(), fresh_from: 1, returned });
        builder.build().expect("a parcel")
    }

    #[test]
    fn a_partition_comes_back_as_it_was() {
        assert_eq!(decode(&encode(&parcel())), Ok(parcel()));
    }

    #[test]
    fn bytes_that_end_too_early_or_go_on_are_none() {
        let bytes = encode(&parcel());
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), Err(ParcelError::Bytes), "{end}");
        }
        assert_eq!(decode(&[&bytes[..], b"x"].concat()), Err(ParcelError::Bytes));
        // A count of more than there could be is no reason to make room for it.
        let mut many = bytes.clone();
        let at = 16 + 4 + 4 + 4 + 1;
        many[at..at + 4].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(decode(&many), Err(ParcelError::Bytes));
    }
}
