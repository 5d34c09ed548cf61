package manager

import (
	"os"
	"path/filepath"
	"testing"

	"sallyport.dev/sallyport/test/support/step"
)

// A file of decision records may be rotated, be removed, and end within a line.
func TestRecordFile(t *testing.T) {
	s := step.T{T: t}
	name := filepath.Join(t.TempDir(), "records")
	s.Must(os.WriteFile(name, []byte("{}\n{\"half"), 0o600))
	to, end, err := (&Options{Records: name}).openRecords()
	s.Must(err)
	write := func(line string) {
		t.Helper()
		_, err := to.Write([]byte(line + "\n"))
		s.Must(err)
	}
	has := func(file, want string) {
		t.Helper()
		text, err := os.ReadFile(file)
		s.Must(err)
		if string(text) != want {
			t.Errorf("%s has %q, not %q", filepath.Base(file), text, want)
		}
	}
	write("1")
	write("2")
	s.Must(os.Rename(name, name+".1"))
	write("3")
	has(name+".1", "{}\n{\"half\n1\n2\n")
	has(name, "3\n")
	s.Must(os.Remove(name))
	write("4")
	has(name, "4\n")
	s.Must(os.Truncate(name, 0)) // as logrotate's copytruncate
	write("5")
	has(name, "5\n")
	s.Must(end())
}
