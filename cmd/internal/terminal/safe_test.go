package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"
)

func TestNothingCommandsTheTerminal(t *testing.T) {
	for text, want := range map[string]string{
		"as\tit is\nüñ 中 👩‍👩‍👧":         "as\tit is\nüñ 中 👩‍👩‍👧",
		"\x1b[2Jgone":                   `\u001b[2Jgone`,
		"\x1b]0;title\a":                `\u001b]0;title\u0007`,
		"\x1b[1;32madmitted\x1b[0m":     `\u001b[1;32madmitted\u001b[0m`,
		"denied\radmitted":              `denied\u000dadmitted`,
		"a\b\x7f\x00":                   `a\u0008\u007f\u0000`,
		"\u009b2J":                      `\u009b2J`,
		"\x9b2J":                        "\ufffd2J",
		"user\u202egnp.exe\u2066\u2028": `user\u202egnp.exe\u2066\u2028`,
	} {
		var whole, bit bytes.Buffer
		if n, err := Safe(&whole).Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%q: %d bytes, error %v", text, n, err)
		}
		out := Safe(Safe(&bit)) // twice is once
		for i := range len(text) {
			if _, err := out.Write([]byte(text)[i : i+1]); err != nil {
				t.Error(err)
			}
		}
		if whole.String() != want || bit.String() != want {
			t.Errorf("%q: got %q, bit by bit %q, want %q", text, whole.String(), bit.String(), want)
		}
	}
}

// A printer with colours shows its own and no others; where there are none it shows none.
func TestColoursAreOurs(t *testing.T) {
	for colour, want := range map[bool]string{
		true:  "\x1b[31mDENIED\x1b[0m \\u001b[8mhidden\n",
		false: "DENIED \\u001b[8mhidden\n",
	} {
		var out bytes.Buffer
		p := Printer{&safe{to: &out, colour: colour}, colour}
		if p.Say("%s \x1b[8mhidden", p.Paint(Red, "DENIED")); out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}
	var out bytes.Buffer
	if p := NewPrinter(Safe(&out)); p.colour {
		t.Error("a buffer has colours")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestThatNothingIsWrittenIsTold(t *testing.T) {
	if n, err := Safe(broken{}).Write([]byte("x")); n != 0 || err == nil {
		t.Errorf("%d bytes, error %v", n, err)
	}
}

// What is encoded as JSON says the same after it, and nothing reaches the terminal that commands it.
func FuzzSafe(f *testing.F) {
	f.Add("a\x1b[0m\u009b\x9b\u202e", 3)
	f.Fuzz(func(t *testing.T, text string, at int) {
		var out bytes.Buffer
		safe := Safe(&out)
		at = max(0, min(at, len(text)))
		for _, part := range []string{text[:at], text[at:]} {
			if _, err := safe.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range out.String() {
			if commands(r) {
				t.Fatalf("%q gives %q", text, out.String())
			}
		}
		if !utf8.ValidString(text) {
			return
		}
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		out.Reset()
		var got string
		if _, err := Safe(&out).Write(encoded); err != nil || json.Unmarshal(out.Bytes(), &got) != nil || got != text {
			t.Fatalf("%q is %q, error %v", text, got, err)
		}
	})
}
