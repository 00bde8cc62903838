"""The figures of Kairos (HPDC'23) again, in virtual time."""
