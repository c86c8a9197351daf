//! The client's side, with a password or with the keys that a client's own login gave.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::{ITERATIONS_MAX, Keys, MECHANISM, MECHANISM_PLUS, Nonce, ScramError};
use super::{attribute, decode_key, hmac, is_nonce, sha256, xor};

/// What we prove ourselves with.
#[derive(Debug, Clone, Copy)]
pub enum Proof<'a> {
    /// The password: costs [`Keys::of_password`].
    Password(&'a [u8]),
    /// The keys: good for servers with the identical verifier.
    Keys(&'a Keys),
}

/// The first message has been made; the server must challenge.
#[derive(Debug)]
pub struct ClientStart {
    header: &'static [u8],
    binding: Vec<u8>,
    /// The message without its GS2 header.
    bare: Vec<u8>,
    nonce: String,
}

/// The proof has been made; the server must prove itself.
#[derive(Debug)]
pub struct ClientFinal {
    server_signature: [u8; 32],
}

impl ClientStart {
    /// Begins. `binding` is the hash of the server's certificate if the connection has TLS;
    /// `plus_offered` whether the server named the PLUS mechanism.
    #[must_use]
    pub fn new(binding: Option<&[u8]>, plus_offered: bool, nonce: Nonce) -> Self {
        let (header, binding): (&[u8], &[u8]) = match (binding, plus_offered) {
            (Some(binding), true) => (b"p=tls-server-end-point,,", binding),
            (Some(_), false) => (b"y,,", &[]),
            (None, _) => (b"n,,", &[]),
        };
        let nonce = STANDARD.encode(nonce);
        ClientStart {
            header,
            binding: binding.to_vec(),
            // Servers take the user from the startup packet; the name here is empty, as libpq's.
            bare: [b"n=,r=", nonce.as_bytes()].concat(),
            nonce,
        }
    }

    /// The mechanism chosen.
    #[must_use]
    pub fn mechanism(&self) -> &'static [u8] {
        if self.header.starts_with(b"p") {
            MECHANISM_PLUS
        } else {
            MECHANISM
        }
    }

    /// The first message.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        [self.header, &self.bare].concat()
    }

    /// The server's challenge: gives the message with the proof.
    ///
    /// # Errors
    /// What is wrong with the challenge.
    pub fn challenge(
        self,
        challenge: &[u8],
        proof: Proof<'_>,
    ) -> Result<(ClientFinal, Vec<u8>), ScramError> {
        let (nonce, salt, iterations) = read_challenge(challenge).ok_or(ScramError::Malformed)?;
        let own = self.nonce.as_bytes();
        if !nonce.starts_with(own) || nonce.len() <= own.len() || !is_nonce(nonce) {
            return Err(ScramError::Nonce);
        }
        let keys = match proof {
            Proof::Keys(keys) => keys.clone(),
            Proof::Password(_) if iterations > ITERATIONS_MAX => {
                return Err(ScramError::TooManyIterations);
            }
            Proof::Password(password) => Keys::of_password(password, &salt, iterations),
        };
        let bound = STANDARD.encode([self.header, &self.binding].concat());
        let mut message = [b"c=", bound.as_bytes(), b",r=", nonce].concat();
        let signed: [&[u8]; 5] = [&self.bare, b",", challenge, b",", &message];
        let mut proof = hmac(&sha256(&*keys.client), &signed);
        xor(&mut proof, keys.client.as_slice());
        let server_signature = hmac(&*keys.server, &signed);
        message.extend_from_slice(b",p=");
        message.extend_from_slice(STANDARD.encode(proof).as_bytes());
        Ok((ClientFinal { server_signature }, message))
    }
}

impl ClientFinal {
    /// The server's last message.
    ///
    /// # Errors
    /// [`Fault::WrongServer`] if it does not know the verifier.
    pub fn finish(self, message: &[u8]) -> Result<(), ScramError> {
        if message.starts_with(b"e=") {
            return Err(ScramError::WrongPassword);
        }
        let (signature, _) = attribute(message, b'v').ok_or(ScramError::Malformed)?;
        let signature = decode_key(signature).ok_or(ScramError::Malformed)?;
        match signature.ct_eq(&self.server_signature).into() {
            true => Ok(()),
            false => Err(ScramError::WrongServer),
        }
    }
}

fn read_challenge(challenge: &[u8]) -> Option<(&[u8], Vec<u8>, u32)> {
    let (nonce, rest) = attribute(challenge, b'r')?;
    let (salt, rest) = attribute(rest, b's')?;
    let (iterations, _) = attribute(rest, b'i')?;
    let salt = STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty())?;
    let iterations = str::from_utf8(iterations).ok()?.parse().ok();
    Some((nonce, salt, iterations.filter(|count| *count > 0)?))
}
