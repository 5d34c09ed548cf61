package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// FromVariable is the revision of this repository to upgrade from, if that is not the last release.
const FromVariable = "SALLYPORT_TEST_UPGRADE_FROM"

// UpgradesFrom gives the revision to upgrade from: that of the variable, else the tag of the last release. It is empty if this is no clone,
// or one without a release.
func UpgradesFrom(ctx context.Context) (string, error) {
	if named := os.Getenv(FromVariable); named != "" {
		return named, nil
	}
	out, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--match=v*", "--abbrev=0", "HEAD").Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) || errors.Is(err, exec.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("looking for the last release: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
