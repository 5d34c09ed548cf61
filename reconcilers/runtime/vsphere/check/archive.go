package check

import (
	"archive/tar"
	"bytes"
	"io"
)

// descriptor describes a machine without disks, with one network.
const descriptor = `<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
 xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData"
 xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData">
 <References/>
 <NetworkSection><Info>networks</Info><Network ovf:name="check"><Description>of the check</Description></Network></NetworkSection>
 <VirtualSystem ovf:id="check"><Info>a machine without disks</Info>
  <VirtualHardwareSection><Info>hardware</Info>
   <System><vssd:ElementName>check</vssd:ElementName><vssd:InstanceID>0</vssd:InstanceID><vssd:VirtualSystemType>vmx-13</vssd:VirtualSystemType></System>
   <Item><rasd:ElementName>cpu</rasd:ElementName><rasd:InstanceID>1</rasd:InstanceID><rasd:ResourceType>3</rasd:ResourceType><rasd:VirtualQuantity>1</rasd:VirtualQuantity></Item>
   <Item><rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits><rasd:ElementName>memory</rasd:ElementName><rasd:InstanceID>2</rasd:InstanceID><rasd:ResourceType>4</rasd:ResourceType><rasd:VirtualQuantity>64</rasd:VirtualQuantity></Item>
   <Item><rasd:ElementName>scsi</rasd:ElementName><rasd:InstanceID>3</rasd:InstanceID><rasd:ResourceSubType>pvscsi</rasd:ResourceSubType><rasd:ResourceType>6</rasd:ResourceType></Item>
   <Item><rasd:Connection>check</rasd:Connection><rasd:ElementName>adapter</rasd:ElementName><rasd:InstanceID>4</rasd:InstanceID><rasd:ResourceSubType>vmxnet3</rasd:ResourceSubType><rasd:ResourceType>10</rasd:ResourceType></Item>
  </VirtualHardwareSection>
 </VirtualSystem>
</Envelope>
`

// archive is an OVA in memory.
type archive struct {
	io.Reader
	size int64
}

// newArchive returns the OVA of a machine without disks.
func newArchive() (*archive, error) {
	var text bytes.Buffer
	files := tar.NewWriter(&text)
	if err := files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "check.ovf", Mode: 0o644, Size: int64(len(descriptor))}); err != nil {
		return nil, err
	}
	if _, err := files.Write([]byte(descriptor)); err != nil {
		return nil, err
	}
	err := files.Close()
	return &archive{&text, int64(text.Len())}, err
}

// Size returns the size in bytes.
func (a *archive) Size() int64 { return a.size }

// Close does nothing.
func (a *archive) Close() error { return nil }
