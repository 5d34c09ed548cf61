package plugin

import (
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/webhooks/offline"
)

// impersonated removes --as and related flags, and returns their user; nil without --as. The caller reads the objects to explain, and
// needs no right to impersonate.
func (p *plugin) impersonated() *authenticationv1.UserInfo {
	f := p.flags
	if *f.Impersonate == "" {
		return nil // with --as-group alone, the API server reports the error
	}
	user := offline.UserNamed(*f.Impersonate, *f.ImpersonateGroup...)
	user.UID = *f.ImpersonateUID
	for _, extra := range *f.ImpersonateUserExtra {
		key, value, _ := strings.Cut(extra, "=")
		if user.Extra == nil {
			user.Extra = map[string]authenticationv1.ExtraValue{}
		}
		user.Extra[key] = append(user.Extra[key], value)
	}
	*f.Impersonate, *f.ImpersonateUID, *f.ImpersonateGroup, *f.ImpersonateUserExtra = "", "", nil, nil
	return &user
}

// policyViewer is the chart's default name of the ClusterRole that grants reading RegoPolicies.
const policyViewer = product + "-policy-viewer"

// unread returns why the RegoPolicies cannot be read, and how to get access.
func unread(err error) error {
	err = fmt.Errorf("reading RegoPolicies: %w", err)
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w\nTo get access, ask a cluster administrator to run: %s", err,
			commands.Line("kubectl", "create", "clusterrolebinding", policyViewer+"-USER", "--clusterrole="+policyViewer, "--user=USER"))
	}
	return err
}
