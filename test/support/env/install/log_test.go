package install

import "testing"

func TestTail(t *testing.T) {
	const text = "one\nhealthz check failed\ntwo\nTLS handshake error\nthree\n"
	for most, want := range map[int]string{1: "three\n", 2: "two\nthree\n", 9: "one\ntwo\nthree\n"} {
		if got := Tail(text, most); got != want {
			t.Errorf("the last %d lines: %q, want %q", most, got, want)
		}
	}
}
