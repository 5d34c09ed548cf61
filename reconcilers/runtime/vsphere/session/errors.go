package session

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"syscall"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Translate converts the error of a request. A fault of vCenter proves that the request was not carried out; any
// other error leaves that open.
func (s *Server) Translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*runtime.Error](err); ok {
		return err
	}
	var answer types.BaseMethodFault
	if _, ok := fault.As(err, &answer); ok {
		return s.faultError(err, answer)
	}
	if ctx.Err() != nil {
		return s.unansweredError(context.Cause(ctx))
	}
	return runtime.NewUnavailable(err, "%s", s.trouble(err))
}

// unansweredError returns the error of a request without an answer, the same for all causes.
func (s *Server) unansweredError(cause error) error {
	return runtime.NewUnavailable(cause, "vCenter %s did not answer in time", s.Config.Name)
}

func (s *Server) faultError(err error, answer types.BaseMethodFault) error {
	name := s.Config.Name
	switch f := answer.(type) {
	case *types.InvalidLogin:
		return runtime.NewPermission(err,
			"vCenter %s refused the login: the user or the password is wrong, or the account is locked", name)
	case *types.NoPermission:
		return runtime.NewPermission(err, "vCenter %s denied the request: missing %s", name, lacking(f))
	case *types.NotAuthenticated:
		return runtime.NewUnavailable(err, "vCenter %s does not keep a session", name)
	case *types.ManagedObjectNotFound:
		return runtime.NewNotFound(err, "vCenter %s no longer has the machine", name)
	case *types.ToolsUnavailable:
		return runtime.NewToolsUnavailable(err, "VMware Tools is not running in the guest")
	case *types.TaskInProgress:
		return runtime.NewInvalidState(err, "another task is in flight for the machine")
	case *types.ConcurrentAccess:
		return runtime.NewInvalidState(err, "the machine's configuration was changed concurrently")
	case *types.InvalidPowerState:
		return runtime.NewInvalidState(err, "the machine is %s", f.ExistingState)
	case *types.FileLocked:
		return runtime.NewInvalidState(err, "a file is locked, as the files of a running machine are")
	case *types.RequestCanceled:
		return runtime.NewInvalidState(err, "the task was cancelled")
	}
	kind := KindOfFault(answer)
	switch answer.(type) {
	case *types.NotSupported, *types.InvalidArgument, *types.MethodDisabled:
	case types.BaseRuntimeFault:
		// These are failures of vCenter itself, such as a host that does not answer, and may happen halfway.
		return runtime.NewUnavailable(err, "vCenter %s failed with %s", name, kind)
	}
	return runtime.NewInvalidState(err, "vCenter %s refused with %s", name, kind)
}

// KindOfFault returns vCenter's name of a fault.
func KindOfFault(f types.BaseMethodFault) string {
	if f == nil {
		return "a fault without a name"
	}
	return reflect.TypeOf(f).Elem().Name()
}

func lacking(f *types.NoPermission) string {
	on := func(privileges string, object types.ManagedObjectReference) string {
		return fmt.Sprintf("the privilege %s on %s %s", privileges, object.Type, object.Value)
	}
	var all []string
	for _, missing := range f.MissingPrivileges {
		all = append(all, on(strings.Join(missing.PrivilegeIds, " and "), missing.Entity))
	}
	switch {
	case len(all) > 0:
		return strings.Join(all, ", ")
	case f.Object != nil:
		return on(f.PrivilegeId, *f.Object)
	default:
		return "the privilege " + f.PrivilegeId
	}
}

// trouble returns why there is no answer, in words that are the same for each attempt.
func (s *Server) trouble(err error) string {
	name := s.Config.Name
	if errors.Is(err, errClosed) {
		return NotConnectedText(name) // with another text the event of the next pass would be lost: there is one per reason
	}
	if errors.Is(err, errThumbprint) {
		return fmt.Sprintf("the certificate of vCenter %s does not match the configured thumbprint", name)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		if len(s.Config.CABundle) == 0 {
			return fmt.Sprintf("the certificate of vCenter %s is not signed by an authority that the system trusts", name)
		}
		return fmt.Sprintf("the certificate of vCenter %s is not signed by an authority of its CA bundle", name)
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Sprintf("the certificate of vCenter %s is not for the host in its URL", name)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired {
			return fmt.Sprintf("the certificate of vCenter %s has expired, or is not valid yet", name)
		}
		return fmt.Sprintf("the certificate of vCenter %s is not valid", name)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return fmt.Sprintf("the server at the URL of vCenter %s does not speak TLS", name)
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Sprintf("the host name of vCenter %s cannot be resolved", name)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Sprintf("the host of vCenter %s refuses connections", name)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return fmt.Sprintf("vCenter %s did not answer in time", name)
	}
	return fmt.Sprintf("vCenter %s did not answer", name)
}

// NotConnectedText returns the message for a VSphereServer that is gone or was replaced.
func NotConnectedText(name string) string {
	return fmt.Sprintf("VSphereServer %s does not exist, or is not connected yet: see its condition Ready", name)
}
