package e2e

import (
	"os"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/env"
)

// onOld reports whether the tests run on the API server of an older Kubernetes, as with make test-old.
func onOld() bool { return os.Getenv("SALLYPORT_TEST_OLD") != "" }

func TestAPIServerIsOfTheVersionThatIsTested(t *testing.T) {
	want := env.KubernetesVersion()
	if onOld() {
		want = env.OldKubernetesVersion()
	}
	if got := newTeam(t).must("", "get", "--raw", "/version"); !strings.Contains(got, `"`+want+`"`) {
		t.Errorf("want %s: %s", want, got)
	}
}
