package manager

import (
	"context"
	"errors"
	"testing"
)

type versionsAre map[string]string

func (v versionsAre) Versions(context.Context) (map[string]string, error) {
	if v == nil {
		return nil, errors.New("the API server does not answer")
	}
	return v, nil
}

// Replicas of one version, or an API server that does not answer, must not make all replicas unready.
func TestWhichReplicasAreReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		versions versionsAre
		want     bool
	}{
		"an update":                         {versionsAre{"a": "v1", "b": "v2"}, true},
		"all of one version":                {versionsAre{"a": "v1", "b": "v1"}, false},
		"an API server that does not reply": {nil, false},
	} {
		if got := replaces(t.Context(), tc.versions); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
