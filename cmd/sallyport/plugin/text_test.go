package plugin

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// What others have written into an object does nothing to the terminal of who looks at it, and makes no cells of its own.
func TestObjectsDoNotCommandTheTerminal(t *testing.T) {
	streams, _, out, errs := genericiooptions.NewTestIOStreams()
	p := cli.New(streams)
	const bad = "nothing wrong\x1b[2K\rReady\u009b1A\vx\fy\tz"
	r := reportOf(func(page *cli.Page) {
		page.Row("Ready:", page.Condition(&metav1.Condition{Status: "False", Reason: "Failed", Message: bad}))
		page.Line("%s", bad)
	})
	if err := cli.Render(p.Out, r, time.Now()); err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), p, []string{"why", "vm", "a", "b\x1b[2J"}); code == 0 {
		t.Error("that is no name")
	}
	for _, text := range []*bytes.Buffer{out, errs} {
		if text.Len() == 0 || strings.ContainsAny(text.String(), "\x1b\r\u009b\v\f") {
			t.Errorf("the terminal gets %q", text.String())
		}
	}
	if want := `nothing wrong\u001b[2K\u000dReady\u009b1A x y z`; !strings.Contains(out.String(), want) {
		t.Errorf("got %q, want %q in it", out.String(), want)
	}
}

type reportOf func(*cli.Page)

func (r reportOf) Text(p *cli.Page) { r(p) }
