package tools

import (
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/cmd/internal/version"
)

func TestVersion(t *testing.T) {
	if out, errs, code := execute(t, "version"); code != 0 || !strings.HasPrefix(out, "Client Version: ") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	for format, read := range map[string]func([]byte, any) error{
		"json": json.Unmarshal, "yaml": func(text []byte, to any) error { return yaml.Unmarshal(text, to) },
	} {
		out, errs, code := execute(t, "version", "-o", format)
		var known struct {
			Client version.Info `json:"clientVersion"`
		}
		if err := read([]byte(out), &known); code != 0 || err != nil || known.Client != version.Get() {
			t.Errorf("-o %s: exit %d, %s%s, %v", format, code, out, errs, err)
		}
	}
	if _, errs, code := execute(t, "version", "-o", "xml"); code != 2 || !strings.Contains(errs, `invalid argument "xml" for "-o, --output" flag: must be json or yaml`) {
		t.Errorf("-o xml: exit %d, %s", code, errs)
	}
}
